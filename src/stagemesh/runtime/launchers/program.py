"""A program of this host that is no stage: its end is heard of, and takes what it has started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

_KILL_S: Final = 5.0
"""How long the kernel may take to end a process."""


class Program:
    """A running program, which leads a group of its own. All methods belong to one loop."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        given: int = subprocess.DEVNULL,
        said: int,
        inherited: Sequence[int] = (),
    ) -> None:
        """Start it; it reads `given`, writes to `said`, and has the descriptors `inherited`.

        Raises `OSError` when it cannot be started.
        """
        self._loop = asyncio.get_running_loop()
        self._process = subprocess.Popen(  # noqa: S603  as it was found on this host
            command,
            stdin=given,
            stdout=said,
            stderr=subprocess.STDOUT,
            pass_fds=inherited,
            env=environment,
            process_group=0,
        )
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError:
            self._process.kill()
            self._process.wait()
            raise
        self.exited: asyncio.Future[int] = self._loop.create_future()
        """Done once nothing is left of it, with its exit code."""
        self._loop.add_reader(self._pidfd, self._reap)

    async def ends(self, within_s: float) -> bool:
        """Whether it ends by itself in time."""
        await asyncio.wait([self.exited], timeout=within_s)
        return self.exited.done()

    async def end(self) -> None:
        """Kill what is left of it."""
        if not self.exited.done():
            self._kill()
            await self.ends(_KILL_S)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._kill()  # what it has started; its number is ours until we have waited for it
        self.exited.set_result(self._process.wait())
