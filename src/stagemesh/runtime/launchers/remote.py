"""A replica that another start runs: first a seat that waits for it, then a stream to it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

from stagemesh.runtime.dialogue import Dialogue
from stagemesh.runtime.messages import (
    Attached,
    Gone,
    Kill,
    Message,
    PeerAt,
    PeerComes,
    PeerGone,
    PeerUp,
    Ping,
    Stop,
    wire_text,
)
from stagemesh.runtime.pipes import GONE_S
from stagemesh.runtime.process import Start
from stagemesh.runtime.stream import Stream
from stagemesh.runtime.transport.handshake import Hello

_SILENT: Final = "its host is gone"

Inquest: TypeAlias = Callable[[str | None], Coroutine[Any, Any, str | None]]
"""Finds out why a process has ended, of which its host may have told something.

The answer is `None` when that is not to be known, and never takes long.
"""


class RemoteProcess:
    """What runs elsewhere; its host ends it when the stream to it ends."""

    pid = None

    def __init__(self, start: Start, inquest: Inquest | None = None) -> None:
        """Wait for it; what it is told meanwhile is kept.

        `inquest` says why it may have ended, above all when nobody at its host has.
        """
        self._inquest = inquest
        self._asking: asyncio.Task[None] | None = None
        self._fate: str | None = None
        self.name = str(start.who)
        self.stage = start.stage.stage_id
        self.replica = start.who.replica
        self._on_exit = start.on_exit
        self._dialogue = Dialogue(start.on_blame)
        self.ready = self._dialogue.ready
        self.pulse = self._dialogue.pulse
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[str] = self._loop.create_future()
        self.seated: asyncio.Future[Hello] = self._loop.create_future()
        """Done once it has come, with what it has said of itself; cancelled if it never does."""
        self._kept: list[Message] = []
        self._gone: Gone | None = None
        self._sock: socket.socket | None = None
        self._stream: Stream | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._thread = threading.get_ident()

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return not self.exited.done()

    @property
    def is_free(self) -> bool:
        """Whether it is still waited for."""
        return self.alive and not self.seated.done()

    @property
    def has_come(self) -> bool:
        """Whether it has ever come."""
        return self._stream is not None

    @property
    def values(self) -> Mapping[str, object]:
        """What its own start has decided for its stage, once it is ready."""
        return self._dialogue.values

    def seat(self, hello: Hello, sock: socket.socket) -> None:
        """It has come: `sock` is the stream to it."""
        self._sock = sock
        self._stream = Stream(sock, self._on_message, self._ended)
        for message in self._kept:
            self._stream.send(message)
        self._kept.clear()
        self.seated.set_result(hello)

    def say(self, message: Message) -> None:
        """Send a message, or keep it until somebody has come, who must not if he is to stop."""
        if self._stream is not None:
            self._stream.send(message)
        elif isinstance(message, Stop):
            self._loop.call_soon(self._withdraw)
        elif self.alive:
            self._kept.append(message)

    def meet(self, up: PeerUp, word: PeerAt | PeerComes) -> asyncio.Future[None]:
        """Tell it how it gets its end of a stream; done once it has it, or has ended."""
        met = self._dialogue.meets(up)
        if self.alive:
            self.say(word)
        else:
            self._dialogue.over()
        return met

    def give_up(self, up: PeerUp, link: int) -> None:
        """It waits for no stream of a peer that has ended."""
        self.say(PeerGone(link=link))
        self._dialogue.forget(up)

    def ping(self) -> None:
        """Ask how it is; unanswered questions are not repeated."""
        if self.pulse.asked():
            self.say(Ping(number=self.pulse.number))

    def kill(self, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """Have its host end it; no softer signal is carried.

        From another thread, where there may be no time for words, the stream to it is ended: then
        its host has no head any more, and ends altogether.
        """
        if with_signal is not signal.SIGKILL:
            return
        if threading.get_ident() == self._thread:
            self._have_ended()
        elif self._sock is not None:
            self._cut()
        else:
            self._loop.call_soon_threadsafe(self._withdraw)

    def lost(self, reason: str | None) -> None:
        """End it because a stream to it has ended; `reason` says what it did wrong, if anything."""
        if self._dialogue.fatal is None:
            self._dialogue.fatal = reason
        self._have_ended()

    def dead(self, fate: str) -> None:
        """Whoever starts it knows that it has ended, or never comes, and how."""
        self._fate = fate
        self._have_ended()

    def last_words(self) -> str:
        """The last lines that it wrote, where its host has told them."""
        is_told = self._dialogue.fatal is not None or self._gone is None
        return "" if is_told or self._gone is None else self._gone.words

    def _on_message(self, message: Message, attached: Attached) -> None:
        if isinstance(message, Gone):
            self._gone = message
        else:
            self._dialogue.hear(message, attached)

    def _have_ended(self) -> None:
        """Ask its host to end it; a host that does not do so in time has no head any more."""
        if self._stream is None:
            self._loop.call_soon(self._withdraw)
        elif self.alive and self._patience is None:
            self._stream.send(Kill())
            self._patience = self._loop.call_later(GONE_S, self._cut)

    def _cut(self) -> None:
        assert self._sock is not None, "it has come"
        with contextlib.suppress(OSError):  # it has ended before
            self._sock.shutdown(socket.SHUT_RDWR)

    def _withdraw(self) -> None:
        if self._stream is None and self.alive:
            self._over(self._fate or "was not waited for any longer")

    def _ended(self, reason: str | None) -> None:
        """The stream has ended, which is the end of it."""
        assert self._stream is not None, "it has come"
        self._stream.close()
        if self._dialogue.fatal is None:
            self._dialogue.fatal = reason
        if self._dialogue.fatal is not None:
            self._over(f"failed: {self._dialogue.fatal}")
            return
        told = self._fate or (None if self._gone is None else self._gone.reason)
        if self._inquest is None or self._fate is not None:
            self._over(told or _SILENT)
        else:
            self._asking = self._loop.create_task(self._ask(self._inquest, told))

    async def _ask(self, inquest: Inquest, told: str | None) -> None:
        found = told or _SILENT
        try:
            found = await inquest(told) or _SILENT
        finally:
            self._over(found)

    def _over(self, reason: str) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self.seated.cancel()
        self._kept.clear()
        self.exited.set_result(reason)
        self._dialogue.over()
        self._on_exit(reason)


def gone(reason: str, words: str) -> Gone:
    """Say how a process has ended, as it can be sent; of its words the last ones go first."""
    return Gone(reason=wire_text(reason), words=wire_text(words[-4096:]))
