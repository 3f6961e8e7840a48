"""Asks every frontend now and then whether it is there, and ends the one that is not.

A frontend that hangs takes connections and answers none of them, for ever: dead it is started
again. Asked is its loop, which everything that it does runs on. Intervals and counts are those of
replicas, and so is the measure: silence is counted in questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from stagemesh.runtime.monitor import INTERVAL_S, NUM_DEAD
from stagemesh.serve.frontends.process import FrontendProcess


class Watch:
    """Watches frontends that serve."""

    def __init__(self, serving: Callable[[], Iterable[FrontendProcess]]) -> None:
        """Begin; `serving` returns those that there are at the time."""
        self._serving = serving
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(INTERVAL_S, self._tick)

    def close(self) -> None:
        """Ask no more."""
        self._timer.cancel()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(INTERVAL_S, self._tick)
        for process in self._serving():
            process.ping()
            missed = process.pulse.missed
            if missed >= NUM_DEAD:
                process.lost(f"has not answered for {missed * INTERVAL_S:g} s")
