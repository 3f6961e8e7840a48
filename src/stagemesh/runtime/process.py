"""One stage process as the supervisor sees it: its process, its control stream, its last words."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import stagemesh
from stagemesh.errors import StartupError
from stagemesh.runtime.messages import (
    Attached,
    Blame,
    Fatal,
    Message,
    Met,
    PeerUp,
    Ping,
    Pong,
    ProtocolError,
    Ready,
)
from stagemesh.runtime.pulse import Pulse
from stagemesh.runtime.stage_output import StageOutput
from stagemesh.runtime.stream import Stream
from stagemesh.spec.frozen import frozen


@frozen
class Incarnation:
    """One process of one replica, which tells it from those before and after it."""

    stage: str
    """Name of the stage."""
    replica: int
    """Number of the replica."""
    number: int = 0
    """How often it had been started before."""

    def __str__(self) -> str:
        return f"stage `{self.stage}` replica `{self.replica}`"


class StageProcess:
    """A running stage process. All methods belong to the loop that started it."""

    def __init__(
        self,
        who: Incarnation,
        environment: Mapping[str, str],
        on_exit: Callable[[str], None],
        on_blame: Callable[[Blame], None],
    ) -> None:
        """Start the process.

        `on_exit` is called once with the reason when it has been reaped, `on_blame` whenever it
        complains of a peer. Raises `StartupError` when there is no process, or no descriptor, left.
        """
        self.name = str(who)
        self._on_exit = on_exit
        self._on_blame = on_blame
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[float] = self._loop.create_future()
        self.exited: asyncio.Future[str] = self._loop.create_future()
        self.pulse = Pulse()
        self._meets: dict[tuple[int | None, int, int], asyncio.Future[None]] = {}
        self._fatal: str | None = None
        with _started(who, environment) as (self._process, ours):
            assert self._process.stdout is not None
            self._pidfd = os.pidfd_open(self._process.pid)
        self._output = StageOutput(self._process.stdout, who.stage, who.replica)
        self._loop.add_reader(self._output, self._read_output)
        self._loop.add_reader(self._pidfd, self._reap)
        self.control = Stream(ours, self._on_message, self.lost)

    @property
    def pid(self) -> int:
        """The process, which leads a group of its own."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not been reaped."""
        return not self.exited.done()

    def kill(self, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the whole group, unless the process has been reaped."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, with_signal)

    def meet(self, up: PeerUp, end: socket.socket) -> asyncio.Future[None]:
        """Hand it its end of a stream; done once it knows the peer, or has ended itself."""
        met: asyncio.Future[None] = self._loop.create_future()
        self._meets[up.stage, up.replica, up.incarnation] = met
        self.control.send(up, (end.detach(),))
        return met

    def ping(self) -> None:
        """Ask how it is; unanswered questions are not repeated."""
        if self.pulse.asked():
            self.control.send(Ping(number=self.pulse.number))

    def lost(self, reason: str | None) -> None:
        """End it because a stream to it has ended; `reason` says what it did wrong, if anything."""
        if self._fatal is None:
            self._fatal = reason
        self.kill()

    def last_words(self) -> str:
        """The last lines that it wrote, where they are all that is known of its end."""
        return "" if self._fatal is not None else self._output.last_lines()

    def _on_message(self, message: Message, attached: Attached) -> None:
        match message:
            case Ready() if not self.ready.done():
                self.ready.set_result(message.load_s)
            case Fatal():
                self._fatal = message.reason
            case Met(stage=stage, replica=replica, incarnation=incarnation):
                _settle(self._meets.pop((stage, replica, incarnation), None))
            case Blame():
                self._on_blame(message)
            case Pong(number=number, step_s=step_s):
                self.pulse.answered(number, step_s)
            case _:
                attached.close()
                raise ProtocolError(f"a stage does not say `{type(message).__name__}` here")

    def _read_output(self) -> None:
        if not self._output.read():
            self._loop.remove_reader(self._output)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.kill()  # what it has started; its number is ours until we have waited for it
        self._process.wait()  # which the descriptor says has an end: this takes no time
        self.control.read_rest()
        self._loop.remove_reader(self._output)
        self._output.close()
        self.control.close()
        reason = self._reason(self._process.returncode)
        self.exited.set_result(reason)
        for met in self._meets.values():
            _settle(met)
        self._meets.clear()
        self._on_exit(reason)

    def _reason(self, code: int) -> str:
        if self._fatal is not None:
            return f"failed: {self._fatal}"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"


def _settle(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


@contextlib.contextmanager
def _started(
    who: Incarnation, environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """Start a process; it is gone again, and nothing is left open, if the block cannot use it."""
    with contextlib.ExitStack() as undo:
        try:
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            with theirs:
                process = _spawn(theirs, environment)
            undo.callback(_undone, process)
            yield process, ours
        except OSError as error:
            raise StartupError(f"{who} could not be started: {error}", stage=who.stage) from error
        undo.pop_all()


def _undone(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _spawn(control: socket.socket, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    fd = control.fileno()
    return subprocess.Popen(  # noqa: S603  our own module, by our own interpreter
        [sys.executable, "-P", "-m", "stagemesh.runtime.stage_main", str(fd)],
        pass_fds=(fd,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        process_group=0,
        env={**os.environ, **environment, "PYTHONPATH": _search_path()},
    )


def _search_path() -> str:
    """Where this process finds modules, so that stages find the same ones, plug-ins included."""
    own = str(Path(stagemesh.__file__).parent.parent)
    return os.pathsep.join(dict.fromkeys([own, *(path or str(Path.cwd()) for path in sys.path)]))
