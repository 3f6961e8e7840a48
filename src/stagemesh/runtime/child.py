"""A stage process as the one that started it sees it: the process, its stream, what it writes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from stagemesh.errors import StartupError
from stagemesh.runtime.messages import Message
from stagemesh.runtime.process import Incarnation
from stagemesh.runtime.stage_output import StageOutput
from stagemesh.runtime.stream import OnEof, OnMessage, Stream
from stagemesh.runtime.surroundings import Surroundings


class Child:
    """A running process. All methods belong to the loop that started it."""

    silent = "it"
    """Who has not answered the last question."""

    def __init__(
        self,
        who: Incarnation,
        around: Surroundings,
        on_message: OnMessage,
        on_eof: OnEof,
        on_exit: Callable[[str], None],
        num_guests: int = 0,
    ) -> None:
        """Start the process; `on_exit` is called once with how it ended, when it has been reaped.

        It gets control streams for so many further stages that are to run in it. Raises
        `StartupError` when there is no process, or no descriptor, left.
        """
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        with _started(who, around, 1 + num_guests) as (self._process, (ours, *others)):
            assert self._process.stdout is not None
            self._pidfd = os.pidfd_open(self._process.pid)
        self.for_guests: Final = others
        """Our ends of the control streams that no guest has taken yet."""
        self._output = StageOutput(self._process.stdout, who.stage, who.replica, who.rank)
        self._loop.add_reader(self._output, self._read_output)
        self._loop.add_reader(self._pidfd, self._reap)
        self.control = Stream(ours, on_message, on_eof)

    @property
    def pid(self) -> int:
        """The process, which leads a group of its own."""
        return self._process.pid

    def say(self, message: Message, fds: tuple[int, ...] = ()) -> None:
        """Send a message; closes `fds` once sent."""
        self.control.send(message, fds)

    def kill(self, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the whole group, unless the process has been reaped."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, with_signal)

    def abandon(self) -> None:
        """End it because a stream to it has ended, which may be all that is known of its death."""
        self.kill()

    def last_lines(self) -> str:
        """The last lines that it wrote."""
        return self._output.last_lines()

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
        for sock in self.for_guests:
            sock.close()
        code = self._process.returncode
        is_killed = f"was killed by {signal.Signals(-code).name}" if code < 0 else None
        self._on_exit(is_killed or f"exited with code {code}")


@contextlib.contextmanager
def _started(
    who: Incarnation, around: Surroundings, num_streams: int
) -> Iterator[tuple[subprocess.Popen[bytes], list[socket.socket]]]:
    """Start a process; it is gone again, and nothing is left open, if the block cannot use it."""
    with contextlib.ExitStack() as undo, contextlib.ExitStack() as handed:
        try:
            pairs = [_pair(undo, handed) for _ in range(num_streams)]
            process = _spawn(who, [theirs for _, theirs in pairs], around)
            handed.close()
            undo.callback(_undone, process)
            yield process, [ours for ours, _ in pairs]
        except OSError as error:
            raise StartupError(f"{who} could not be started: {error}", stage=who.stage) from error
        undo.pop_all()


def _pair(
    undo: contextlib.ExitStack, handed: contextlib.ExitStack
) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    undo.callback(ours.close)
    handed.callback(theirs.close)
    return ours, theirs


def _undone(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _spawn(
    who: Incarnation, controls: Iterable[socket.socket], around: Surroundings
) -> subprocess.Popen[bytes]:
    fds, environment = [control.fileno() for control in controls], around.environment
    module = "rank_main" if who.rank else "stage_main"
    label = f"{who.stage}/{who.replica}/{who.rank}"  # for whoever looks at processes
    own = [sys.executable, "-P", "-m", f"stagemesh.runtime.{module}", *map(str, fds), label]
    return subprocess.Popen(  # noqa: S603  our own module, by our own interpreter
        [*around.binding, *own],
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        process_group=0,
        env={**environment, "PYTHONPATH": search_path(around.variables)},
    )


def search_path(environment: Mapping[str, str]) -> str:
    """Where a stage finds modules: our own first, then where it says, then as this process does."""
    own = str(Path(__file__).parents[2])
    given = environment.get("PYTHONPATH", "").split(os.pathsep)
    ours = (path or str(Path.cwd()) for path in sys.path)
    return os.pathsep.join(dict.fromkeys([own, *filter(None, given), *ours]))
