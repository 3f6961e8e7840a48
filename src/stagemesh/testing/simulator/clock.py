"""Virtual time: events in order, and wires that keep the order of what is sent on them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final


class Clock:
    """Events to come, and the only source of chance of a history."""

    __slots__ = ("_heap", "_number", "chance", "now")

    def __init__(self, seed: int) -> None:
        """Begin at time 0."""
        self.now = 0
        self.chance: Final = random.Random(seed).random  # noqa: S311  histories are to be repeatable
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number: Final = itertools.count()

    def below(self, number: int) -> int:
        """A number from 0 to `number - 1`."""
        return int(self.chance() * number)

    def at(self, time: int, call: Callable[..., None], given: tuple[Any, ...] = ()) -> None:
        """Call then; what is due at the same time comes in the order in which it was said."""
        heappush(self._heap, (time, next(self._number), call, given))

    def soon(self, most: int, call: Callable[..., None], given: tuple[Any, ...] = ()) -> None:
        """Call in 1 to `most` ticks."""
        self.at(self.now + 1 + int(self.chance() * most), call, given)

    def step(self) -> bool:
        """Go on to the next event and let it happen; whether there was one."""
        if not self._heap:
            return False
        self.now, _, call, given = heappop(self._heap)
        call(*given)
        return True


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
        self._last = max(self._last, at)
        clock.at(self._last, call, given)
