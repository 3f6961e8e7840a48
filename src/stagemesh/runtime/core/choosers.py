"""One class per routing policy: which of the eligible replicas takes the next request.

A chooser knows the eligible replicas and their backlog, and is told of every change. No choice
looks at all replicas: the cost does not grow with their number.
"""

from __future__ import annotations

import heapq
import random
from abc import ABC, abstractmethod
from typing import Final

from stagemesh.runtime.core.ring import IdRing

_SPARE: Final = 64
"""Stale entries of a heap that are not worth tidying up."""


class Chooser(ABC):
    """A policy over the eligible replicas."""

    @abstractmethod
    def add(self, replica: int, backlog: int) -> None:
        """A replica has become eligible with this backlog."""

    @abstractmethod
    def remove(self, replica: int, backlog: int) -> None:
        """It is eligible no more."""

    def moved(self, replica: int, old: int, new: int) -> None:  # noqa: B027  most need not know
        """The backlog of an eligible replica has changed."""

    @abstractmethod
    def choose(self, key: str, cost: int) -> int:
        """Choose one; there is at least one."""


class RoundRobin(Chooser):
    """The next eligible one in ascending order after the last pick.

    The cursor is a replica, not a count, so that a death does not shift the others' order.
    """

    def __init__(self) -> None:
        """Begin before the first."""
        self._ring = IdRing()
        self._last = -1

    def add(self, replica: int, backlog: int) -> None:  # noqa: ARG002  only who is there matters
        """A replica has become eligible."""
        self._ring.add(replica)

    def remove(self, replica: int, backlog: int) -> None:  # noqa: ARG002
        """It is eligible no more."""
        self._ring.discard(replica)

    def choose(self, key: str, cost: int) -> int:  # noqa: ARG002
        """The next one."""
        self._last = self._ring.after(self._last)
        return self._last


class Uniform(Chooser):
    """Any one, uniformly."""

    def __init__(self, seed: int | None) -> None:
        """`seed` makes the choices repeatable."""
        self._random = random.Random(seed)  # noqa: S311  spreads load, guards nothing
        self._members: list[int] = []
        self._places: dict[int, int] = {}

    def add(self, replica: int, backlog: int) -> None:  # noqa: ARG002  only who is there matters
        """A replica has become eligible."""
        self._places[replica] = len(self._members)
        self._members.append(replica)

    def remove(self, replica: int, backlog: int) -> None:  # noqa: ARG002
        """It is eligible no more: the last one takes its place."""
        place, moved = self._places.pop(replica), self._members.pop()
        if moved != replica:
            self._members[place] = moved
            self._places[moved] = place

    def choose(self, key: str, cost: int) -> int:  # noqa: ARG002
        """One of them."""
        return self._members[int(self._random.random() * len(self._members))]


class LeastQueue(Chooser):
    """The one with the smallest backlog; among equals the next after the last pick."""

    def __init__(self) -> None:
        """Begin before the first."""
        self._by_backlog: dict[int, IdRing] = {}
        self._heap: list[int] = []
        self._last = -1

    def add(self, replica: int, backlog: int) -> None:
        """A replica has become eligible."""
        ring = self._by_backlog.get(backlog)
        if ring is None:
            ring = self._by_backlog[backlog] = IdRing()
            heapq.heappush(self._heap, backlog)
        ring.add(replica)

    def remove(self, replica: int, backlog: int) -> None:
        """It is eligible no more."""
        ring = self._by_backlog[backlog]
        ring.discard(replica)
        if not ring:
            del self._by_backlog[backlog]  # its entry in the heap stays behind, and may be stale
            if len(self._heap) > 2 * len(self._by_backlog) + _SPARE:
                self._heap = sorted(self._by_backlog)

    def moved(self, replica: int, old: int, new: int) -> None:
        """Its backlog has changed."""
        self.remove(replica, old)
        self.add(replica, new)

    def choose(self, key: str, cost: int) -> int:  # noqa: ARG002
        """The least loaded one."""
        while self._heap[0] not in self._by_backlog:
            heapq.heappop(self._heap)
        self._last = self._by_backlog[self._heap[0]].after(self._last)
        return self._last
