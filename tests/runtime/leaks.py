"""What a system holds while it runs, and what it might leave behind."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stagemesh.testing.connector_conformance import open_fds
from tests.runtime.started import POLL_S, Started
from tests.waiting import WAIT_S

MEMORY_FILE: Final = "/memfd:"
"""How links to files begin that have no name: the memory of edges."""


@dataclass(frozen=True, slots=True)
class Host:
    """What a system might leave behind."""

    children: frozenset[int]
    descriptors: int
    shared: frozenset[Path]


def host() -> Host:
    """Look at it."""
    shared = frozenset(Path("/dev/shm").iterdir())  # noqa: S108  it is looked at
    return Host(children(), len(open_fds()), shared)


def wait_until_as(before: Host) -> None:
    """Wait until nothing of a system is left.

    Shared memory of others on this machine comes and goes; what was left behind never does.
    """
    now = host()
    assert (now.children, now.descriptors) == (before.children, before.descriptors)
    deadline = time.monotonic() + WAIT_S
    while left := [path for path in now.shared - before.shared if path.exists()]:
        assert time.monotonic() < deadline, left
        time.sleep(POLL_S)


def children() -> frozenset[int]:
    """Processes that this one has started and that are not gone."""
    found: set[int] = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has ended meanwhile
            found.update(map(int, (task / "children").read_text().split()))
    return frozenset(found)


def processes(started: Started) -> list[int]:
    """This process, then that of every replica, in the order of their places."""
    places = sorted(started.omni.pids.items(), key=lambda item: (item[0].stage, item[0].replica))
    return [os.getpid(), *(pid for _, pid in places)]


def descriptors(started: Started) -> tuple[list[int], list[int]]:
    """Open descriptors of every process: of all else, and of memory of edges."""
    opened = [_opened_by(pid) for pid in processes(started)]
    arenas = [sum(target.startswith(MEMORY_FILE) for target in targets) for targets in opened]
    return [len(targets) - mine for targets, mine in zip(opened, arenas, strict=True)], arenas


def stranded(started: Started, others: frozenset[int]) -> frozenset[int]:
    """Memory files that one process alone still holds, for the other end of its edge is gone.

    `others` are those that this process had before.
    """
    holders = Counter(file for pid in processes(started) for file in memory_files(pid) - others)
    return frozenset(file for file, number in holders.items() if number == 1)


def memory_files(pid: int) -> frozenset[int]:
    """Memory of edges that a process holds, by the numbers of the files."""
    found: set[int] = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            if str(descriptor.readlink()).startswith(MEMORY_FILE):
                found.add(descriptor.stat().st_ino)
    return frozenset(found)


def own_memory(started: Started) -> list[int]:
    """Bytes of memory that each process has for itself."""
    return [_own_memory(pid) for pid in processes(started)]


def _opened_by(pid: int) -> list[str]:
    """What the descriptors of a process lead to."""
    targets: list[str] = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            targets.append(str(descriptor.readlink()))
    return targets


def _own_memory(pid: int) -> int:
    [line] = [
        line
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
        if line.startswith("RssAnon:")
    ]
    return int(line.split()[1]) * 1024
