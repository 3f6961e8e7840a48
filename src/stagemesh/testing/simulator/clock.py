"""Virtual time: events in order, and wires that keep the order of what is sent on them."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any, Final


class Clock:
    """Events to come, and the only source of chance of a history."""

    __slots__ = ("_heap", "_number", "chance", "now", "random")

    def __init__(self, seed: int) -> None:
        """Begin at time 0."""
        self.now = 0
        self.random: Final = random.Random(seed)  # noqa: S311  histories are to be repeatable
        self.chance: Final = self.random.random
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def below(self, number: int) -> int:
        """A number from 0 to `number - 1`."""
        return int(self.chance() * number)

    def at(self, time: int, call: Callable[..., None], *given: object) -> None:
        """Call then; what is due at the same time comes in the order in which it was said."""
        heapq.heappush(self._heap, (time, self._number, call, given))
        self._number += 1

    def step(self) -> tuple[Callable[..., None], tuple[Any, ...]] | None:
        """Go on to the next event and return it; `None` when nothing is to come."""
        if not self._heap:
            return None
        self.now, _, call, given = heapq.heappop(self._heap)
        return call, given


class Wire:
    """One direction of a connection: nothing overtakes, and every message takes its own time."""

    __slots__ = ("_clock", "_last", "_spread")

    def __init__(self, clock: Clock, spread: int) -> None:
        """A message takes from 1 to `spread` ticks."""
        self._clock = clock
        self._spread = spread
        self._last = 0

    def send(self, call: Callable[..., None], *given: object) -> None:
        """`call` is what the other end does when the message comes."""
        clock = self._clock
        at = clock.now + 1 + int(clock.chance() * self._spread)
        self._last = at = max(at, self._last)
        clock.at(at, call, *given)
