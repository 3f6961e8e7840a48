"""What a command may leave behind: nothing."""

from __future__ import annotations

import os
from pathlib import Path

import psutil


def stage_processes() -> set[int]:
    """Every stage process on this machine, by process id."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        if "stagemesh.runtime.stage_main" in (process.info["cmdline"] or ()):
            found.add(process.pid)
    return found


def shared_memory() -> set[str]:
    """Every entry of shared memory that has a name."""
    return {entry.name for entry in Path("/dev/shm").iterdir()}  # noqa: S108  looked at, not used


def descriptors() -> int:
    """Open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  the count is all that matters
