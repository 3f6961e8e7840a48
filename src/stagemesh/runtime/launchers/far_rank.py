"""A further rank that somebody else keeps, as the keeper of its rank 0 sees it.

Two streams come for it: one for control, and its feed. On one host the feed is made here instead,
and goes along the other one, so that long messages need not be copied. The end of the stream for
control is the end of the rank, whatever has become of its process: its keeper ends that.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from stagemesh.runtime.launchers.gate import Gate
from stagemesh.runtime.messages import Attached, Feed, Gone, Kill, Meeting, Message
from stagemesh.runtime.pipes import GONE_S
from stagemesh.runtime.ranks.feed import feed_pair
from stagemesh.runtime.stream import OnMessage, Stream
from stagemesh.runtime.transport.tls import TlsFiles, secured
from stagemesh.spec.frozen import frozen

_LOST: Final = "is gone, and so is whoever kept it"
_NEVER_CAME: Final = "was not waited for any longer"


class RankLinks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The streams of one rank to its rank 0, by the numbers under which they come."""

    control: int
    """What both ends' keepers say to each other."""
    feed: int
    """What rank 0 says to the rank; it does not come where both are on one host."""


@frozen
class FarRanks:
    """Where further ranks come in, rank 1 first."""

    gate: Gate
    """The door that they come to."""
    links: tuple[RankLinks, ...]
    """Their streams."""
    files: TlsFiles | None
    """Certificates, where streams between hosts go on under TLS."""

    @property
    def address(self) -> str:
        """Where this host is reached by those of all ranks."""
        return self.gate.place[0]


class FarRank:
    """One of them. All methods belong to one loop."""

    def __init__(
        self, number: int, far: FarRanks, on_message: OnMessage, on_exit: Callable[[str], None]
    ) -> None:
        """Wait for it; `on_exit` is called once with how it ended."""
        self._number = number
        self._far = far
        self._links = far.links[number - 1]
        self._on_message = on_message
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._stream: Stream | None = None
        self._gone: Gone | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._is_over = False

    def set_up(self, meeting: Meeting, on_feed: Callable[[socket.socket], None]) -> None:
        """Tell it where the ranks meet, when it comes; `on_feed` gets rank 0's end of its feed."""
        self._meeting = meeting
        self._on_feed = on_feed
        self._far.gate.expect(self._links.control, self._come)
        self._far.gate.expect(self._links.feed, on_feed)

    def say(self, message: Message) -> None:
        """Send a message, if it has come."""
        if self._stream is not None:
            self._stream.send(message)

    def kill(self, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """Have its keeper end it; no softer signal is carried.

        A keeper that does not do so in time hears nothing more, and ends it then.
        """
        if with_signal is not signal.SIGKILL or self._is_over:
            return
        if self._stream is None:
            self._loop.call_soon(self._over, _NEVER_CAME)
        elif self._patience is None:
            self._stream.send(Kill())
            self._patience = self._loop.call_later(GONE_S, self._over, _LOST)

    def last_lines(self) -> str:
        """The last lines that it wrote, where its keeper has told them."""
        return "" if self._gone is None else self._gone.words

    def _come(self, sock: socket.socket) -> None:
        is_near = sock.family == socket.AF_UNIX
        files = None if is_near else self._far.files
        stream = Stream(secured(sock, files, is_acceptor=True), self._heard, self._ended)
        self._stream = stream
        stream.send(self._meeting)
        if is_near:
            self._far.gate.forget(self._links.feed)
            try:
                ours, theirs = feed_pair()
            except OSError as error:
                self._over(f"could not be given its feed: {error}")
                return
            stream.send(Feed(rank=self._number), (theirs.detach(),))
            self._on_feed(ours)

    def _heard(self, message: Message, attached: Attached) -> None:
        if isinstance(message, Gone):
            self._gone = message
        else:
            self._on_message(message, attached)

    def _ended(self, reason: str | None) -> None:
        if reason is not None:
            self._over(f"is not understood: {reason}")
        else:
            self._over(_LOST if self._gone is None else self._gone.reason)

    def _over(self, how: str) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._patience is not None:
            self._patience.cancel()
        self._far.gate.forget(self._links.control)
        self._far.gate.forget(self._links.feed)
        if self._stream is not None:
            self._stream.close()
        self._on_exit(how)
