"""What a command may leave behind: nothing."""

from __future__ import annotations

from pathlib import Path


def marked(marker: str) -> set[int]:
    """Every process whose environment carries `marker`, a text that a test made up."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = entry.read_bytes()
        except OSError:  # it has just ended, or is not ours
            continue
        if marker.encode() in environment:
            found.add(int(entry.parent.name))
    return found


def shared_memory() -> set[str]:
    """Every entry of shared memory that has a name."""
    return {entry.name for entry in Path("/dev/shm").iterdir()}  # noqa: S108  looked at, not used
