"""What the parent and a frontend say to each other, and how it crosses the socket between them.

parent -> frontend   Begin, then Stop Look Restore Ping; Told answers a Tell
frontend -> parent   Ready or Failed, then Seen Restored Pong; Tell asks for what is known of all

Both ends are of one installation and one user, and nobody else has the socket. Whoever finds it
closed ends: a frontend has nobody to work for without its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from struct import Struct as Layout
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from stagemesh.runtime.load import Times

_HEAD: Final = Layout(">I")
"""Length of the word behind it."""


class _Word(Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """Base of what is said."""


class Begin(_Word, frozen=True, kw_only=True):
    """What a frontend is to serve, and how."""

    plan: str
    """Its share of the plan, in the saved form."""
    frontend: int
    """Its number."""
    key: bytes
    """What requests must bear; empty for nothing."""
    queue_limit: int | None
    """Its part of that limit."""
    max_request_bytes: int
    """Longest body of a request."""
    max_unread_bytes: int
    """Output of a request that may wait for its client."""
    log_format: str | None
    """How every request is logged; `None` for not at all."""
    debug: bool
    """Whether everything that stages write is shown."""


class Stop(_Word, frozen=True, kw_only=True):
    """Begin to drain; a second one ends everything at once."""


class Look(_Word, frozen=True, kw_only=True):
    """Say how you are."""

    number: int


class Ping(_Word, frozen=True, kw_only=True):
    """Say that you are there."""

    number: int


class Restore(_Word, frozen=True, kw_only=True):
    """Start the replicas of a stage again that had died too often."""

    number: int
    stage: str


class Told(_Word, frozen=True, kw_only=True):
    """What was asked about all frontends."""

    number: int
    status: int
    content_type: str
    body: bytes


class Ready(_Word, frozen=True, kw_only=True):
    """Requests can be served."""


class Flaw(_Word, frozen=True, kw_only=True):
    """One thing that is wrong."""

    code: str
    message: str
    help: str | None


class Failed(_Word, frozen=True, kw_only=True):
    """It did not come up, or could not do what it was asked: the word of its error."""

    message: str
    stage: str | None = None
    flaws: tuple[Flaw, ...] = ()
    """What is wrong with the user's input, where that is the cause."""


class Reading(_Word, frozen=True, kw_only=True):
    """One sample of a metric."""

    name: str
    labels: tuple[str, ...]
    value: float | Times


class Seen(_Word, frozen=True, kw_only=True):
    """How a frontend is."""

    number: int
    state: dict[str, object]
    """Its system, as `GET /state` of a server that is alone shows it."""
    readings: tuple[Reading, ...]
    """What it has counted."""


class Pong(_Word, frozen=True, kw_only=True):
    """It is there."""

    number: int


class Restored(_Word, frozen=True, kw_only=True):
    """It was done, or why not."""

    number: int
    failed: Failed | None = None


class Tell(_Word, frozen=True, kw_only=True):
    """A client asks for what is known of all frontends."""

    number: int
    what: Literal["health", "metrics"]
    accept: str = ""
    """The form that the client takes."""


Word: TypeAlias = (
    Begin | Stop | Look | Ping | Restore | Told | Ready | Failed | Seen | Pong | Restored | Tell
)
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Word)


class Link:
    """One end of the socket between the parent and a frontend."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, sock: socket.socket) -> Link:
        """Take over a connected socket."""
        return cls(*await asyncio.open_unix_connection(sock=sock))

    def say(self, word: Word) -> None:
        """Send a word; what nobody hears any more is dropped."""
        if not self._writer.is_closing():
            said = _encoder.encode(word)
            self._writer.write(_HEAD.pack(len(said)) + said)

    async def hear(self) -> Word | None:
        """Wait for the next word; `None` when the other end is gone."""
        try:
            (length,) = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
            return _decoder.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            return None

    async def flush(self) -> None:
        """Wait until all that was said has left this process, and say nothing more."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def close(self) -> None:
        """Hear and say nothing more."""
        self._writer.close()
