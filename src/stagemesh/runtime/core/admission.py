"""Admission: how many requests are taken on, which go to their replica now, and which wait.

At most as many requests are in flight as the replicas of the entry stage have slots, and a bounded
number more. A replica is sent only what its window holds; the rest waits in the queue of that
replica, in order, unseen by the stage. So a request that waits costs a stage nothing, ends at its
deadline without anybody's help, and outlives the replica that it waited for.
"""

from __future__ import annotations

import heapq
from typing import Final

from stagemesh.spec.frozen import frozen

_FIRST_GUESS_S: Final = 1.0
"""Seconds of a request, before any has ended."""
_MEMORY: Final = 0.2
"""Weight of the newest request in the mean duration."""


@frozen
class Refusal:
    """A request that is not taken on now: trying again later can help."""

    in_flight: int
    """Requests that are."""
    limit: int
    """Most that are."""
    retry_after_s: float
    """Seconds after which a place is likely to be free."""


class _Seats:
    """One replica: who was sent to it, and who waits."""

    __slots__ = ("retired", "sent", "slots", "waiting", "window")

    def __init__(self, slots: int, window: int | None) -> None:
        self.retired = False
        self.slots = slots
        self.window = window
        self.sent: dict[str, float] = {}
        self.waiting: dict[str, None] = {}

    @property
    def has_room(self) -> bool:
        return self.window is None or len(self.sent) < self.window


class Admission:
    """The requests of one frontend, by replica of the entry stage."""

    def __init__(self, queue_limit: int | None = None) -> None:
        """Take on `queue_limit` requests more than there are slots; `None` for any number."""
        self._queue_limit: Final = queue_limit
        self._replicas: dict[int, _Seats] = {}
        self._in_flight: dict[str, int | None] = {}
        self._mean_s = _FIRST_GUESS_S

    @property
    def in_flight(self) -> int:
        """Requests taken on that have not gone."""
        return len(self._in_flight)

    @property
    def slots(self) -> int:
        """Slots of the replicas that take requests."""
        return sum(seats.slots for seats in self._replicas.values() if not seats.retired)

    @property
    def limit(self) -> int | None:
        """Most requests in flight; `None` for any number."""
        return None if self._queue_limit is None else self.slots + self._queue_limit

    def sent(self, replica: int) -> int:
        """Requests that a replica was sent and still holds."""
        seats = self._replicas.get(replica)
        return 0 if seats is None else len(seats.sent)

    def waiting(self, replica: int) -> tuple[str, ...]:
        """Requests in the queue of a replica, in order."""
        seats = self._replicas.get(replica)
        return () if seats is None else tuple(seats.waiting)

    def has(self, replica: int) -> bool:
        """Whether a replica is there."""
        return replica in self._replicas

    def join(self, replica: int, slots: int, window: int | None = None) -> None:
        """A replica has `slots`, and is sent at most `window` requests at a time."""
        self._replicas[replica] = _Seats(slots, window)

    def retire(self, replica: int, *, retired: bool = True) -> None:
        """Its slots count no more, or count again; who waits for it waits on."""
        seats = self._replicas.get(replica)
        if seats is not None:
            seats.retired = retired

    def unqueue(self, replica: int) -> tuple[str, ...]:
        """Return who waited for a replica; they are to be placed at others."""
        seats = self._replicas.get(replica)
        return () if seats is None else self._moved(seats)

    def leave(self, replica: int) -> tuple[str, ...]:
        """It is gone; return who waited for it and needs another replica."""
        seats = self._replicas.pop(replica, None)
        return () if seats is None else self._moved(seats)

    def admit(self, request: str) -> Refusal | None:
        """Take a request on, or say why not."""
        limit = self.limit
        if limit is not None and len(self._in_flight) >= limit:
            wait_s = self._mean_s / max(self.slots, 1)
            return Refusal(in_flight=len(self._in_flight), limit=limit, retry_after_s=wait_s)
        self._in_flight[request] = None
        return None

    def place(self, request: str, replica: int, now: float) -> bool:
        """A request is bound to a replica; whether it is sent now, or waits until it is named."""
        seats = self._replicas[replica]
        self._in_flight[request] = replica
        if seats.has_room and not seats.waiting:
            seats.sent[request] = now
            return True
        seats.waiting[request] = None
        return False

    def served(self, request: str, now: float) -> tuple[str, ...]:
        """The replica does not hold a request any more; return who is sent to it now."""
        replica = self._in_flight.get(request)
        seats = None if replica is None else self._replicas.get(replica)
        if seats is None:
            return ()
        began = seats.sent.pop(request, None)
        if began is None:
            seats.waiting.pop(request, None)
        else:
            self._mean_s += _MEMORY * (now - began - self._mean_s)
        going = []
        while seats.waiting and seats.has_room:
            first = next(iter(seats.waiting))
            del seats.waiting[first]
            seats.sent[first] = now
            going.append(first)
        return tuple(going)

    def gone(self, request: str) -> None:
        """Nobody holds a request any more."""
        self._in_flight.pop(request, None)

    def _moved(self, seats: _Seats) -> tuple[str, ...]:
        moved = tuple(seats.waiting)
        seats.waiting.clear()
        for request in moved:
            self._in_flight[request] = None
        return moved


class Deadlines:
    """When each request has to have ended."""

    def __init__(self) -> None:
        """None is set."""
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    @property
    def next(self) -> float | None:
        """The earliest one."""
        self._tidy()
        return self._heap[0][0] if self._heap else None

    def set(self, request: str, at: float) -> None:
        """A request has until then."""
        self._at[request] = at
        heapq.heappush(self._heap, (at, request))

    def clear(self, request: str) -> None:
        """It has ended."""
        self._at.pop(request, None)

    def due(self, now: float) -> tuple[str, ...]:
        """Requests whose time is over, earliest first; each is named once."""
        found = []
        self._tidy()
        while self._heap and self._heap[0][0] <= now:
            _, request = heapq.heappop(self._heap)
            del self._at[request]
            found.append(request)
            self._tidy()
        return tuple(found)

    def _tidy(self) -> None:
        """Drop what was cleared, or set anew, from the front of the heap."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
