"""A stage that runs in the process of another, as the one that started that process sees it."""

from __future__ import annotations

import signal

from stagemesh.runtime.child import Child
from stagemesh.runtime.messages import Message
from stagemesh.runtime.stream import OnEof, OnMessage, Stream


class Lodger:
    """A control stream of its own into the process of `host`, which is all that it has."""

    silent = "it"
    """Who has not answered the last question."""

    def __init__(self, host: Child, on_message: OnMessage, on_eof: OnEof) -> None:
        """Take one of the streams that the process was started with for it."""
        self._host = host
        self.control = Stream(host.for_guests.pop(), on_message, on_eof)

    @property
    def pid(self) -> int:
        """The process that it is in."""
        return self._host.pid

    def say(self, message: Message, fds: tuple[int, ...] = ()) -> None:
        """Send a message; closes `fds` once sent."""
        self.control.send(message, fds)

    def kill(self, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the process, and so to everybody in it."""
        self._host.kill(with_signal)

    def abandon(self) -> None:
        """End the process because a stream to the stage has ended."""
        self._host.abandon()

    def last_lines(self) -> str:
        """The last lines that the process wrote."""
        return self._host.last_lines()
