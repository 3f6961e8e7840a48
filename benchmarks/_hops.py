"""What measurements of a hop between two processes share."""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

WARM_UP: Final = 5
"""Hops before those that are counted."""
_LARGE: Final = 1_000_000
_HUGE: Final = 50_000_000


def repetitions(size: int) -> int:
    """Enough for a median, not for a coffee."""
    return (12 if size > _HUGE else 30) if size > _LARGE else 400


def times_of(work: Callable[[], object], count: int) -> list[float]:
    """Microseconds of each call of `work`, after a warm-up."""
    times = []
    for number in range(count + WARM_UP):
        began = time.perf_counter()
        work()
        if number >= WARM_UP:
            times.append((time.perf_counter() - began) * 1e6)
    return times


def in_child(
    work: Callable[[socket.socket], None],
    pair: Callable[[], tuple[socket.socket, socket.socket]] = socket.socketpair,
) -> tuple[socket.socket, int]:
    """Run `work` in a forked process; return the socket to it and its pid."""
    ours, theirs = pair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        work(theirs)
        os._exit(0)
    theirs.close()
    return ours, pid


def summary(name: str, times: Sequence[float]) -> dict[str, float]:
    """The median, the best and the 99th percentile of some times."""
    ordered = sorted(times)
    return {
        f"{name}_us": round(statistics.median(ordered), 1),
        f"{name}_best_us": round(ordered[0], 1),
        f"{name}_p99_us": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], 1),
    }
