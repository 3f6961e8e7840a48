"""Ranks for tests: one long-lived pool for each number of ranks, started once.

A pool is one process that has imported torch and forks its ranks. A case is a function of a module
under `tests.parallel`; every rank runs it with the same arguments and answers with JSON.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from stagemesh.parallel.mesh.stores import TCPStore
from tests.waiting import WAIT_S

ROOT: Final = Path(__file__).parents[2]


class Pool:
    """So many ranks, which wait for cases."""

    def __init__(self, size: int, within_s: float = WAIT_S) -> None:
        """Start them; `within_s` is the deadline of their meshes."""
        self.size: Final = size
        self.broken = False
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        pairs = [socket.socketpair() for _ in range(size)]
        theirs = [end for _, end in pairs]
        told = {"port": self._store.port, "within_s": within_s, "fds": [e.fileno() for e in theirs]}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.parallel.rank_main", json.dumps(told)],
            pass_fds=[end.fileno() for end in theirs],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for end in theirs:
            end.close()
        self._lines = [_Lines(end) for end, _ in pairs]
        self.pids = [int(str(self.answer(rank))) for rank in range(size)]

    def run(self, case: str, **given: object) -> list[Any]:
        """Run `module.function` on every rank, and return what each returned."""
        for rank in range(self.size):
            self.tell(rank, case, **given)
        return [self.answer(rank) for rank in range(self.size)]

    def tell(self, rank: int, case: str, **given: object) -> None:
        """Let one rank begin with a case."""
        self._lines[rank].write({"case": case, "given": given})

    def answer(self, rank: int) -> object:
        """Return what a rank returned; fails with its traceback where it raised."""
        said = self._lines[rank].read()
        if said is None or "error" in said:
            self.broken = True
            raise AssertionError(f"rank {rank}: {said and said['error']}")
        return said["value"]

    def close(self) -> None:
        """End the ranks and wait for them."""
        for each in self._lines:
            each.close()
        self._process.wait(WAIT_S)
        del self._store


class _Lines:
    """JSON, one value a line."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(WAIT_S)
        self._end = end
        self._file = end.makefile("rb")

    def write(self, value: object) -> None:
        self._end.sendall(json.dumps(value).encode() + b"\n")

    def read(self) -> dict[str, Any] | None:
        line = self._file.readline()
        return json.loads(line) if line else None

    def close(self) -> None:
        self._file.close()
        self._end.close()


_POOLS: Final[dict[int, Pool]] = {}


def pool_of(size: int) -> Pool:
    """Return the pool of so many ranks; a new one where there is none, or one has failed."""
    found = _POOLS.get(size)
    if found is None or found.broken:
        if found is not None:
            found.close()
        _POOLS[size] = Pool(size)
    return _POOLS[size]


def close_pools() -> None:
    """End all ranks."""
    while _POOLS:
        _POOLS.popitem()[1].close()


@contextmanager
def own_pool(size: int) -> Iterator[Pool]:
    """A pool for a test that breaks it."""
    pool = Pool(size)
    try:
        yield pool
    finally:
        pool.close()
