"""What the benchmarks of planning share: commands as children, measured when they end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STAGEMESH: Final = (sys.executable, "-m", "stagemesh")
FIXTURES: Final = Path(__file__).parents[1] / "tests" / "fixtures"

PUBLISHED: Final = {
    "system": "vllm-omni 0.30",
    "source": "published measurement of the same resolve, two shared cores",
    "import_s": [10, 20],
    "resolve_warm_ms": [9, 18],
    "resolve_first_ms": [180, 1070],
    "rss_mb": 778,
}
"""Resolving one configuration there; not measured here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run of a command."""

    cpu_ms: float
    """Milliseconds of user and system time."""
    rss_mb: float
    """Most memory, in 10^6 bytes."""


def run(command: Sequence[str]) -> Measured:
    """Run a command to its end; raises when it fails."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        message = f"`{' '.join(command)}` exited with {process.returncode}"
        raise SystemExit(message)
    seconds = usage.ru_utime + usage.ru_stime
    return Measured(cpu_ms=1000 * seconds, rss_mb=usage.ru_maxrss * 1024 / 1e6)


def best_of(runs: int, command: Sequence[str]) -> Measured:
    """Return the run that took the least CPU time: other work on the machine only ever adds."""
    return min((run(command) for _ in range(runs)), key=lambda measured: measured.cpu_ms)
