"""A timer that moves: it rings once, at the time that was set last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Sleeps until it is set."""

    def __init__(self, ring: Callable[[], None]) -> None:
        """Call `ring` on the running loop when it is time."""
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Whether it is going to ring."""
        return self._timer is not None

    def set(self, at: float | None) -> None:
        """Ring at that time of the loop, or not at all."""
        if self._timer is not None and (at is None or self._timer.when() != at):
            self._timer.cancel()
            self._timer = None
        if at is not None and self._timer is None:
            self._timer = self._loop.call_at(at, self._rings)

    def _rings(self) -> None:
        self._timer = None
        self._ring()
