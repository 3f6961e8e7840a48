"""One frontend as its parent sees it: the process, and what it says."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from stagemesh.errors import DiagnosticError, StagemeshError, StartupError
from stagemesh.runtime.child import search_path
from stagemesh.runtime.pulse import Pulse
from stagemesh.serve.frontends.words import (
    Begin,
    Failed,
    Link,
    Look,
    Ping,
    Pong,
    Ready,
    Restore,
    Restored,
    Seen,
    Stop,
    Tell,
    Told,
    Word,
)
from stagemesh.spec.diagnostic import Diagnostic

_MODULE: Final = "stagemesh.serve.frontends.main"
_LINGER_S: Final = 3.0
"""How long a process may live on that has nothing more to say."""


class FrontendProcess:
    """A process that serves. All methods belong to the loop that started it."""

    def __init__(
        self, begin: Begin, door: socket.socket, answer: Callable[[Tell], Awaitable[Told]]
    ) -> None:
        """Start it at `door`, which is then its own; `answer` says how all frontends are.

        Raises `OSError` when there is no process, or no descriptor, left.
        """
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        """Done once it serves."""
        self.failed: Failed | None = None
        """Why it could not go on, where it has said so."""
        self.pulse: Final = Pulse()
        """Whether it answers."""
        self._lost: str | None = None
        self._answer = answer
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[Seen | Restored | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._reaped: asyncio.Future[str] = loop.create_future()
        self._link: Link | None = None
        self._unsaid: list[Word] = [begin]
        """What it is told as soon as it can be."""
        with door, contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            with theirs:
                self._process = _spawned(theirs, door)
            undo.callback(self._undone)
            self._pidfd = os.pidfd_open(self._process.pid)
            undo.pop_all()
        loop.add_reader(self._pidfd, self._reap)
        self.exited: Final = asyncio.ensure_future(self._lives(ours))
        """Done once it has been reaped, with how it ended."""

    @property
    def pid(self) -> int | None:
        """Its number, until it has been reaped."""
        return None if self._reaped.done() else self._process.pid

    @property
    def error(self) -> StagemeshError:
        """Why it could not go on, once it has ended."""
        failed = self.failed
        return StartupError(self.exited.result()) if failed is None else error_of(failed)

    async def look(self, within_s: float) -> Seen | None:
        """Ask how it is; `None` when it does not say in time."""
        number = next(self._numbers)
        seen = await self._ask(Look(number=number), number, within_s)
        assert not isinstance(seen, Restored), "it was not asked to restore anything"
        return seen

    async def restore(self, stage: str) -> None:
        """Let it start those replicas of a stage again that had died too often."""
        number = next(self._numbers)
        done = await self._ask(Restore(number=number, stage=stage), number, None)
        if isinstance(done, Restored) and done.failed is not None:
            raise error_of(done.failed)

    def ping(self) -> None:
        """Ask whether it is there; unanswered questions are not repeated."""
        if self.pulse.asked():
            self._say(Ping(number=self.pulse.number))

    def lost(self, reason: str) -> None:
        """End it at once; `reason` says what it did wrong."""
        self._lost = reason
        self.kill()

    def stop(self) -> None:
        """Tell it to drain; a second time it ends at once."""
        self._say(Stop())

    def kill(self) -> None:
        """End it at once; its stages find their streams closed, and end as well."""
        if not self._reaped.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _say(self, word: Word) -> None:
        if self._link is None:
            self._unsaid.append(word)
        else:
            self._link.say(word)

    async def _ask(
        self, word: Look | Restore, number: int, within_s: float | None
    ) -> Seen | Restored | None:
        if self._link is None:
            return None
        found: asyncio.Future[Seen | Restored | None] = asyncio.get_running_loop().create_future()
        self._asked[number] = found
        self._say(word)
        try:
            async with asyncio.timeout(within_s):
                return await found
        except TimeoutError:
            return None
        finally:
            del self._asked[number]

    async def _lives(self, ours: socket.socket) -> str:
        """Hear it until it ends; whoever stops waiting ends it."""
        try:
            link = self._link = await Link.over(ours)
            for said in self._unsaid:
                link.say(said)
            try:
                while (word := await link.hear()) is not None:
                    self._heard(word)
            except msgspec.MsgspecError as error:
                self.failed = Failed(message=f"it cannot be understood: {error}")
                self.kill()
            await asyncio.wait((self._reaped,), timeout=_LINGER_S)
        finally:
            self.kill()
            if self._link is not None:
                self._link.close()
                self._link = None  # it is asked nothing more
            for found in self._asked.values():
                if not found.done():
                    found.set_result(None)
            for task in self._tasks:
                task.cancel()
        end = await self._reaped
        return end if self._lost is None else self._lost

    def _heard(self, word: Word) -> None:
        match word:
            case Ready():
                self.ready.set_result(None)
            case Failed():
                self.failed = word
            case Pong(number=number):
                self.pulse.answered(number, 0.0)
            case Seen(number=number) | Restored(number=number):
                found = self._asked.get(number)
                if found is not None and not found.done():
                    found.set_result(word)
            case Tell():
                task = asyncio.ensure_future(self._tell(word))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case _:
                raise msgspec.ValidationError(f"a frontend does not say `{type(word).__name__}`")

    async def _tell(self, tell: Tell) -> None:
        self._say(await self._answer(tell))

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        code = self._process.wait()  # which the descriptor says has an end: this takes no time
        is_killed = f"was killed by {signal.Signals(-code).name}" if code < 0 else None
        self._reaped.set_result(is_killed or f"exited with code {code}")

    def _undone(self) -> None:
        self._process.kill()
        self._process.wait()


def error_of(failed: Failed) -> StagemeshError:
    """Return the error that a frontend has told of."""
    if not failed.flaws:
        return StartupError(failed.message, stage=failed.stage)
    return DiagnosticError(
        [Diagnostic(code=one.code, message=one.message, help=one.help) for one in failed.flaws]
    )


def _spawned(control: socket.socket, door: socket.socket) -> subprocess.Popen[bytes]:
    fds = (control.fileno(), door.fileno())
    return subprocess.Popen(  # noqa: S603  our own module, by our own interpreter
        [sys.executable, "-P", "-m", _MODULE, *map(str, fds)],
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        process_group=0,
        env={**os.environ, "PYTHONPATH": search_path({})},
    )
