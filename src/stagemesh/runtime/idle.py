"""Waiting until no request goes through a replica, or through any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stagemesh.runtime.replica import ReplicaId


class Idle:
    """Everybody who waits for that. All methods belong to one loop."""

    def __init__(self, is_busy: Callable[[ReplicaId | None], bool]) -> None:
        """`is_busy` says whether requests go through a replica, or through any for `None`."""
        self._is_busy = is_busy
        self._waits: list[tuple[ReplicaId | None, asyncio.Future[None]]] = []

    def wait(self, where: ReplicaId | None) -> asyncio.Future[None]:
        """Done at once where nothing is to be waited for."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits.append((where, future))
        self.look()
        return future

    def look(self) -> None:
        """A request is gone: it may have been the last one somebody waited for."""
        for where, future in self._waits:
            if not future.done() and not self._is_busy(where):
                future.set_result(None)
        self._waits = [(where, future) for where, future in self._waits if not future.done()]
