"""CUDA MPS daemons: how they are asked, and those of our own.

A daemon of our own runs in the foreground under a keeper (`runtime/mps_keeper.py`), which ends it
when this process closes its socket to the keeper, or dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stagemesh.config.host import VISIBLE
from stagemesh.errors import StagemeshError
from stagemesh.runtime.launchers.program import Program
from stagemesh.runtime.surroundings import Surroundings

PROGRAM: Final = "nvidia-cuda-mps-control"
PIPE: Final = "CUDA_MPS_PIPE_DIRECTORY"
_LOG: Final = "CUDA_MPS_LOG_DIRECTORY"
_PYTHON: Final = (sys.executable, "-I", "-S")
_KEEPER: Final = str(Path(__file__).parent.parent / "mps_keeper.py")
_TIED: Final = str(Path(__file__).parent.parent / "tied.py")
_ANSWER_S: Final = 5.0
"""How long a daemon may take to answer."""
_START_S: Final = 10.0
"""How long one of our own may take until it does."""
_AGAIN_S: Final = 0.1
"""Time between two questions to one that starts: nothing else tells when it listens."""
_STOP_S: Final = 15.0
"""More than all deadlines of the keeper together."""


class MpsError(StagemeshError):
    """A daemon cannot be had, or does not answer."""


async def ask(program: str, directory: str, question: str) -> str:
    """Ask the daemon that has its pipes in `directory`; raises `MpsError` without an answer."""
    around = Surroundings(variables={PIPE: directory})
    command = [*_PYTHON, _TIED, str(os.getpid()), program]
    try:
        with _memory("question") as given, _memory("answer") as said:
            os.pwrite(given, f"{question}\n".encode(), 0)
            asked = Program(command, around.environment, given=given, said=said)
            try:
                in_time = await asked.ends(_ANSWER_S)
            finally:
                await asked.end()
            answer = _text(said)
    except OSError as error:
        raise MpsError(f"`{program}` cannot be run: {error}") from error
    if not in_time:
        raise MpsError(f"the daemon at `{directory}` has not answered within {_ANSWER_S:g} s")
    if asked.exited.result() != 0:
        raise MpsError(f"the daemon at `{directory}` does not answer: {_last_line(answer)}")
    return answer


async def is_attached(program: str, directory: str, pid: int) -> bool:
    """Whether a process, or one that it has started, is a client; raises `MpsError`."""
    for server in _numbers(await ask(program, directory, "get_server_list")):
        clients = _numbers(await ask(program, directory, f"get_client_list {server}"))
        if any(_group(client) == pid for client in clients):
            return True
    return False


class OwnDaemon:
    """A daemon of this process, for one GPU. All methods belong to one loop."""

    def __init__(self, program: str, visible: str | None) -> None:
        """Start it for the GPU that the driver calls `visible`; raises `OSError`.

        Its clients see that GPU alone, as number 0.
        """
        self._program = program
        self._folder = Path(tempfile.mkdtemp(prefix="stagemesh-mps-", dir=_runtime_folder()))
        self.directory: Final = str(self._folder / "pipe")
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, self._folder, ignore_errors=True)
            variables = {PIPE: self.directory, _LOG: str(self._folder / "log")}
            for name in variables.values():
                Path(name).mkdir(mode=0o700)
            if visible is not None:
                variables[VISIBLE] = visible
            self._said = undo.enter_context(_memory("daemon"))
            self._wanted, theirs = socket.socketpair()
            undo.callback(self._wanted.close)
            with theirs:
                self._keeper = Program(
                    self._command(theirs.fileno()),
                    Surroundings(variables=variables).environment,
                    said=self._said,
                    inherited=[theirs.fileno()],
                )
            self._undo = undo.pop_all()
        self.exited: Final = self._keeper.exited

    async def answers(self) -> None:
        """Wait until it does; raises `MpsError` when it has ended, or takes too long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _START_S
        while True:
            try:
                await ask(self._program, self.directory, "get_server_list")
            except MpsError:
                if await self._keeper.ends(_AGAIN_S):
                    told = f"the daemon has ended: {_last_line(_text(self._said))}"
                    raise MpsError(told) from None
                if loop.time() > deadline:
                    raise
            else:
                return

    async def stop(self) -> None:
        """End it; nothing is left of it, nor of its folder. Calling it again does nothing."""
        self._wanted.close()
        try:
            await self._keeper.ends(_STOP_S)
        finally:
            await self._keeper.end()
            self._undo.close()

    def _command(self, wanted: int) -> list[str]:
        arguments = [str(wanted), self._program, str(self._folder)]
        return [*_PYTHON, _KEEPER, *arguments]


def _runtime_folder() -> str | None:
    """Where things live that end with the login; sockets need a short path."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    return given if given and Path(given).is_dir() else None


@contextlib.contextmanager
def _memory(name: str) -> Iterator[int]:
    """A file without a place."""
    descriptor = os.memfd_create(f"stagemesh-mps-{name}")
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _text(descriptor: int) -> str:
    return os.pread(descriptor, 1 << 20, 0).decode(errors="replace")


def _last_line(text: str) -> str:
    lines = text.split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split() if word.isdecimal()]


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, OverflowError):
        return None
