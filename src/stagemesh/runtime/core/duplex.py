"""Full-duplex sessions of one frontend: where each one goes, and what it holds until it is gone.

A session takes one replica of every stage, a *group*, and keeps it across turns, pauses and new
connections. It holds its place from the moment it opens until every stage has cleaned up after it,
however it ends. Sessions are never moved: when a replica dies, all sessions on it are closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, Literal, TypeAlias

from stagemesh.plan.sessions import DuplexPlan
from stagemesh.spec.frozen import frozen

Places: TypeAlias = tuple[tuple[int, int], ...]
"""Replicas, each by the position of its stage and its number."""


class SessionState(Enum):
    """Where a session stands. It holds its place in each of them."""

    OPENING = "opening"
    """Stages are being told of it."""
    OPEN = "open"
    """It is served."""
    CLOSING = "closing"
    """Stages clean up after it."""


@frozen
class SessionRefusal:
    """A session that cannot be opened now."""

    message: str
    """What the client is told."""
    code: Literal["resource_exhausted"] = "resource_exhausted"
    """What kind of refusal it is."""
    retryable: bool = True
    """Another frontend may have room, and so may this one later."""


@frozen
class Placed:
    """A session that has its place."""

    group: int | None
    """The group; `None` where sessions take no groups."""
    replicas: Mapping[int, int]
    """The replica of every stage, by position of the stage; empty without a group."""


class _Session:
    """One session that holds a place."""

    __slots__ = ("absent_since", "group", "heard", "places", "state")

    def __init__(self, group: int | None, places: Places, now: float) -> None:
        self.group = group
        self.places = places
        self.state = SessionState.OPENING
        self.heard = now
        self.absent_since: float | None = None


class Sessions:
    """The sessions of one frontend. Stages are counted by their position in a group, from 0."""

    def __init__(self, plan: DuplexPlan, frontend: int = 0) -> None:
        """Begin without sessions, every replica alive."""
        own = plan.frontends[frontend]
        self._plan: Final = plan
        self._limit: Final = own.quota if len(plan.frontends) == 1 else own.capacity
        self._cap: Final = plan.max_sessions_per_replica
        self._groups: Final = {
            number: tuple(enumerate(plan.groups[number].replicas)) for number in own.groups
        }
        self._reserved = dict.fromkeys(
            (place for places in self._groups.values() for place in places), 0
        )
        self._gone: set[tuple[int, int]] = set()
        self._sessions: dict[str, _Session] = {}
        self._last = -1

    @property
    def limit(self) -> int:
        """Most sessions at once."""
        return self._limit

    @property
    def reserved(self) -> Mapping[tuple[int, int], int]:
        """Places that are held, by stage and replica."""
        return self._reserved

    @property
    def states(self) -> Mapping[str, SessionState]:
        """Where every session stands."""
        return {name: session.state for name, session in self._sessions.items()}

    @property
    def closing(self) -> tuple[str, ...]:
        """Sessions whose stages have to be told to clean up until they say that they have."""
        return self._in(SessionState.CLOSING)

    def open(self, name: str, now: float) -> Placed | SessionRefusal:
        """Give a session its place, on the least loaded group, or say why there is none."""
        assert name not in self._sessions, f"session `{name}` is there already"
        if len(self._sessions) >= self._limit:
            return SessionRefusal(message=f"duplex_session_capacity_exhausted: limit={self._limit}")
        group = None
        if self._plan.replica_policy == "least_sessions":
            group = self._choose()
            if group is None:
                told = f"replica_capacity_exhausted: limit={self._cap} sessions of each replica"
                return SessionRefusal(message=told)
            self._last = group
        places = () if group is None else self._groups[group]
        self._sessions[name] = _Session(group, places, now)
        self._count(group, 1)
        return Placed(group=group, replicas=dict(places))

    def seated(self, name: str, replicas: Mapping[int, int]) -> None:
        """A session without a group goes through these replicas; it dies with them all the same."""
        self._sessions[name].places = tuple(replicas.items())

    def opened(self, name: str, now: float) -> bool:
        """Every stage has taken the session; whether it is still wanted."""
        session = self._sessions.get(name)
        if session is None or session.state is not SessionState.OPENING:
            return False
        session.state = SessionState.OPEN
        session.heard = now
        return True

    def rolled_back(self, name: str) -> None:
        """Opening has failed, and the stages hold nothing of it: its place is free, once."""
        session = self._sessions.get(name)
        if session is not None and session.state is SessionState.OPENING:
            self._free(name, session)

    def close(self, name: str) -> bool:
        """The session is over; whether that is news, so that stages are to clean up."""
        session = self._sessions.get(name)
        if session is None or session.state is SessionState.CLOSING:
            return False
        session.state = SessionState.CLOSING
        return True

    def cleaned(self, name: str) -> None:
        """Every stage has cleaned up: its place is free, once."""
        session = self._sessions.get(name)
        if session is not None and session.state is SessionState.CLOSING:
            self._free(name, session)

    def died(self, stage: int, replica: int) -> tuple[str, ...]:
        """A replica is gone; its sessions, idle ones too, which are closing from now on."""
        self._gone.add((stage, replica))
        lost = tuple(
            name for name, session in self._sessions.items() if (stage, replica) in session.places
        )
        return tuple(name for name in lost if self.close(name))

    def held(self, stage: int, replica: int) -> None:
        """A replica takes no further sessions for now; those that it has go on."""
        self._gone.add((stage, replica))

    def joined(self, stage: int, replica: int) -> None:
        """A replica is there again, or takes sessions again."""
        self._gone.discard((stage, replica))

    # --- silence -------------------------------------------------------------------------------

    def heard(self, name: str, now: float) -> None:
        """Something has come from the client, so it is there."""
        session = self._sessions.get(name)
        if session is not None:
            session.heard = now
            session.absent_since = None

    def busy(self, name: str, now: float) -> None:
        """Something is computed for it, so it is not idle, whether its client is there or not."""
        session = self._sessions.get(name)
        if session is not None:
            session.heard = now

    def disconnected(self, name: str, now: float) -> None:
        """The client's connection has ended; it may come back."""
        session = self._sessions.get(name)
        if session is not None:
            session.absent_since = now

    def reap(self, now: float) -> tuple[str, ...]:
        """Sessions that were silent, or alone, for too long; they are closing from now on."""
        plan = self._plan
        over = [
            name
            for name, session in self._sessions.items()
            if session.state is SessionState.OPEN
            and (
                (plan.idle_ttl_s is not None and now - session.heard >= plan.idle_ttl_s)
                or (
                    session.absent_since is not None
                    and now - session.absent_since >= plan.disconnect_grace_s
                )
            )
        ]
        return tuple(name for name in over if self.close(name))

    # --- how -----------------------------------------------------------------------------------

    def _choose(self) -> int | None:
        """The eligible group whose fullest replica is emptiest, then with the fewest sessions.

        All replicas have the same cap, so counts compare as their shares of it do. Among equals
        the first after the last pick is taken, in a circle.
        """
        best: tuple[int, int, bool, int] | None = None
        for number, places in self._groups.items():
            if self._is_eligible(places):
                counts = [self._reserved[place] for place in places]
                key = (max(counts), sum(counts), number <= self._last, number)
                best = key if best is None else min(best, key)
        return None if best is None else best[3]

    def _is_eligible(self, places: Iterable[tuple[int, int]]) -> bool:
        return all(
            place not in self._gone and self._cap is not None and self._reserved[place] < self._cap
            for place in places
        )

    def _count(self, group: int | None, number: int) -> None:
        if group is not None:
            for place in self._groups[group]:
                self._reserved[place] += number

    def _free(self, name: str, session: _Session) -> None:
        del self._sessions[name]
        self._count(session.group, -1)

    def _in(self, state: SessionState) -> tuple[str, ...]:
        return tuple(name for name, session in self._sessions.items() if session.state is state)
