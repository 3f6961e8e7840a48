"""A system under load that loses replicas: who is not concerned notices nothing, nothing is left.

The long form takes minutes; the short one goes by requests and not by time.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.runtime import leaks
from tests.runtime.hunting import Hunter, Traffic
from tests.runtime.soaking import deployed, users, without_faults
from tests.runtime.started import Started

MIB: Final = 1024 * 1024
MOST_SPARE_FILES: Final = 128
"""Memory files by which a process may hold more than before, for giants to come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How long and how hard."""

    num_streams: int
    """Requests that run at any time."""
    warm_up: int
    """Kills before the first look."""
    num_strikes: int
    """Kills between the two looks."""
    pause_s: float
    """Seconds between two of them; answers come in any case."""
    most_bytes: int
    """Memory of its own that a process may have taken meanwhile."""


SHORT: Final = Form(num_streams=12, warm_up=0, num_strikes=2, pause_s=0, most_bytes=32 * MIB)
LONG: Final = Form(num_streams=32, warm_up=3, num_strikes=30, pause_s=20, most_bytes=16 * MIB)
"""Ten minutes."""


def soak(folder: Path, form: Form) -> None:
    """Look at the system when it is warm, and again after the soak."""
    before, others = leaks.host(), leaks.memory_files(os.getpid())
    with Started(deployed(folder)) as started:
        hunter = Hunter(started, "vocoder")
        whole = started.call(without_faults(started.omni))
        traffic = Traffic(hunter, users(started.omni, whole, form.num_streams))
        started.call(traffic.under_fire(form.warm_up))
        started.call(started.until_serving())
        started.settle()
        opened, kept = leaks.descriptors(started)
        memory = leaks.own_memory(started)

        started.call(traffic.under_fire(form.num_strikes, form.pause_s), wait_s=None)
        started.call(started.until_serving())
        started.settle()
        assert len(hunter.killed) == form.warm_up + form.num_strikes
        assert 0 < traffic.num_hit < traffic.num_answered
        assert traffic.num_left
        assert leaks.children() - before.children == set(started.omni.pids.values())
        started.call(started.until(lambda: leaks.descriptors(started)[0] == opened))
        started.call(started.until(lambda: not leaks.stranded(started, others)))
        more = [now - then for then, now in zip(kept, leaks.descriptors(started)[1], strict=True)]
        assert max(more) < MOST_SPARE_FILES, more
        grown = [now - then for then, now in zip(memory, leaks.own_memory(started), strict=True)]
        assert max(grown) < form.most_bytes, grown
    leaks.wait_until_as(before)


@pytest.mark.slow
def test_a_few_deaths_under_load_concern_nobody_else(tmp_path: Path) -> None:
    """Every request has its bytes, or is one that was bound to a process that died."""
    soak(tmp_path, SHORT)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_ten_minutes_of_deaths_under_load_leave_nothing(tmp_path: Path) -> None:
    """A replica is killed every twenty seconds, while thirty-two requests run at any time."""
    soak(tmp_path, LONG)
