"""The closed union of messages between processes, and how one becomes a frame.

A frame is the length of its message (4 bytes), the number of descriptors that come with it (1
byte), the length of the bulk behind it (8 bytes), the message in MessagePack, and the bulk.
Whatever does not decode to exactly one of these types is a `ProtocolError`, which ends the stream
it came on.

supervisor -> stage   Setup PeerUp Welcome Stop Ping; PeerAt PeerComes PeerGone Kill elsewhere
supervisor -> rank    Setup Meeting Feed Ping; Meeting Feed to rank 0, which is the stage itself
stage -> supervisor   Ready Fatal Met Blame Pong; Gone from one elsewhere
rank -> supervisor    Fatal Pong
caller -> stage       Submit Targets Cancel OpenSession CloseSession
stage -> caller       Progress Whole Marks Finished Failed Cancelled
stage -> caller       SessionOpened SessionClosed
both ways on an edge  Chunk Ack Credit
"""

from __future__ import annotations

import os
from struct import Struct as Layout
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from stagemesh.errors import StagemeshError
from stagemesh.runtime.load import Load
from stagemesh.runtime.session_messages import MAX_NAME, OfSession, SessionName
from stagemesh.spec.frozen import frozen

PROTOCOL: Final = 7
"""Version of these messages; both ends must have the same."""
FRAME_HEAD: Final = Layout(">IBQ")
"""Length of the message, number of descriptors, and length of the bulk."""
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""Longest message; bulk data travels behind one, never in it."""
MAX_FDS: Final = 8
"""Most descriptors of one message."""
MAX_CREDITS: Final = 4096
"""Most chunks of one `Credit` or `Ack`."""

_MAX_TEXT: Final = 4096
_Text = Annotated[str, Meta(max_length=_MAX_TEXT)]
_Count = Annotated[int, Meta(ge=0)]
_Units: TypeAlias = dict[str, float]


class ProtocolError(StagemeshError):
    """The other end said something that it must not say."""


@frozen
class Attached:
    """What came with a message; it belongs to whoever took the message."""

    fds: tuple[int, ...] = ()
    """Descriptors."""
    bulk: tuple[memoryview, ...] = ()
    """The bulk behind it, in one piece, or nothing."""

    def close(self) -> None:
        """Give back the descriptors: nobody wants them."""
        for fd in self.fds:
            os.close(fd)


NOTHING: Final = Attached()
"""What comes with most messages."""


class _Wire(Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """Base of what is sent: its fields in order, and no more."""


class Key(_Wire, frozen=True, kw_only=True):
    """One request: its name and the epoch that tells it from an earlier one of that name."""

    rid: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
    epoch: _Count


class Setup(_Wire, frozen=True, kw_only=True, tag=1):
    """What a stage process is to be; the first message on its control stream.

    The plan travels in its saved form, so that what is run is what can be read back.
    """

    protocol: int
    plan: str
    stage: _Count
    replica: _Count
    rank: _Count = 0


class PeerUp(_Wire, frozen=True, kw_only=True, tag=2):
    """A stream to another process, as a descriptor: a stage's replica, or the caller for `None`.

    It takes the place of an earlier one to that replica, which `incarnation` tells apart. Answered
    by `Met`.
    """

    stage: _Count | None
    replica: _Count
    incarnation: _Count = 0
    tls: Literal["dialer", "acceptor"] | None = None
    """Which end of TLS this is, where the stream is to go on under it."""


class Stop(_Wire, frozen=True, kw_only=True, tag=3):
    """Close the engine and exit."""


class Welcome(_Wire, frozen=True, kw_only=True, tag=14):
    """Every peer has been named: load the engine."""


class Ready(_Wire, frozen=True, kw_only=True, tag=4):
    """The engine is loaded."""

    load_s: float
    values: dict[str, object] = {}
    """What the start of this process has decided for its stage."""


class Fatal(_Wire, frozen=True, kw_only=True, tag=5):
    """The stage cannot go on; the process exits after this."""

    reason: _Text


class Submit(_Wire, frozen=True, kw_only=True, tag=6):
    """A request for this replica, with replica and incarnation of the stages that it feeds.

    One that has been started again meanwhile is not meant: it has not heard of the request. Stages
    that are left out are chosen when all that goes to them is there, which `Whole` tells.
    """

    key: Key
    params: dict[str, object]
    targets: dict[int, tuple[_Count, _Count]]
    window: _Count = 0
    """Bytes of output that may be on their way to the caller."""
    progress: bool = False
    """Whether somebody wants to hear `Progress`."""
    trace: Annotated[str, Meta(max_length=64)] | None = None
    """The W3C trace context under which somebody wants to hear `Marks`, when somebody does."""
    turn: _Count | None = None
    """When this replica is told, in one count with the epochs; `None` for when the request began.

    What a replica is told by its caller ascends by this.
    """
    turns: dict[int, _Count] = {}
    """The turns of those targets that were told after the request began."""
    session: SessionName | None = None
    """The session that it is a turn of; this replica has opened it."""


class Whole(_Wire, frozen=True, kw_only=True, tag=46):
    """All that a request gives to stages that were left out is there; answered by `Targets`."""

    key: Key


class Targets(_Wire, frozen=True, kw_only=True, tag=47):
    """Replica and incarnation of further stages that a request feeds, which were told just now.

    May come before the request is whole: another stage has ended that feeds the same ones.
    """

    key: Key
    targets: dict[int, tuple[_Count, _Count]]
    turn: _Count


class Cancel(_Wire, frozen=True, kw_only=True, tag=7):
    """Forget a request; answered by its terminal message, whichever that is."""

    key: Key


class Progress(_Wire, frozen=True, kw_only=True, tag=8):
    """What a stage has done for a request so far."""

    key: Key
    units: _Units


class Finished(_Wire, frozen=True, kw_only=True, tag=9):
    """A stage is done with a request, and everything it said has been sent."""

    key: Key
    units: _Units
    seconds: float
    first_output_s: float | None


class Failed(_Wire, frozen=True, kw_only=True, tag=10):
    """A stage could not serve a request; others go on."""

    key: Key
    invalid: bool
    message: _Text


class Cancelled(_Wire, frozen=True, kw_only=True, tag=11):
    """A stage has forgotten a request, as it was asked to."""

    key: Key


class Chunk(_Wire, frozen=True, kw_only=True, tag=12):
    """One payload of a request on an edge; `number` and `body` are the connector's ticket."""

    key: Key
    seq: _Count
    number: _Count
    body: bytes
    last: bool
    at: float = 0.0
    """When it was sent, on the monotonic clock of its host."""
    turn: _Count | None = None
    """The turn in which the consumer was told; `None` for when the request began."""


class Ack(_Wire, frozen=True, kw_only=True, tag=13):
    """The consumer is done with tickets: their numbers, and their memory, may be used again."""

    numbers: Annotated[tuple[_Count, ...], Meta(min_length=1, max_length=MAX_CREDITS)]
    kept: bool = False
    """Whether it keeps the payloads in memory of its own; `Credit` follows when it does no more."""


class Credit(_Wire, frozen=True, kw_only=True, tag=15):
    """The consumer is done with chunks that it had kept, so that others of that request may go."""

    key: Key
    seqs: Annotated[tuple[_Count, ...], Meta(min_length=1, max_length=MAX_CREDITS)]


class Hop(_Wire, frozen=True, kw_only=True):
    """A chunk that has come; `sent` is by the clock of its sender's host."""

    source: int
    seq: _Count
    num_bytes: _Count
    sent: float
    taken: float


class Marks(_Wire, frozen=True, kw_only=True, tag=45):
    """What became of a traced request in a stage, by its clock; said before its terminal word."""

    key: Key
    submitted: float
    started: float | None
    """When the first input came."""
    over: float | None
    """When the engine was done with it."""
    closed: float
    hops: list[Hop]
    num_left_out: _Count = 0
    """Further hops, which would have been too many."""


class PeerAt(_Wire, frozen=True, kw_only=True, tag=20):
    """A `PeerUp` for a replica elsewhere: the stream is to be dialed.

    It is to be found at the address, or at the head's own when that is empty.
    """

    stage: _Count | None
    replica: _Count
    incarnation: _Count
    link: _Count
    address: Annotated[str, Meta(max_length=255)]
    port: Annotated[int, Meta(ge=0, le=65535)]


class PeerComes(_Wire, frozen=True, kw_only=True, tag=21):
    """A `PeerUp` for a replica elsewhere: the stream will come in under this number."""

    stage: _Count | None
    replica: _Count
    incarnation: _Count
    link: _Count


class PeerGone(_Wire, frozen=True, kw_only=True, tag=24):
    """The stream of that number does not come: the other end of it has ended."""

    link: _Count


class Kill(_Wire, frozen=True, kw_only=True, tag=23):
    """End the process of a replica elsewhere at once; answered by `Gone`."""


class Gone(_Wire, frozen=True, kw_only=True, tag=22):
    """The process of a replica elsewhere has ended; nothing follows."""

    reason: _Text
    words: _Text
    """The last lines that it wrote, where they are all that is known."""


class Met(_Wire, frozen=True, kw_only=True, tag=30):
    """The peer of a `PeerUp` is known: requests that go to it may come."""

    stage: _Count | None
    replica: _Count
    incarnation: _Count


class Blame(_Wire, frozen=True, kw_only=True, tag=31):
    """A peer said what it must not say; its stream is closed, everything else goes on."""

    stage: _Count | None
    replica: _Count
    incarnation: _Count
    reason: _Text


class Meeting(_Wire, frozen=True, kw_only=True, tag=40):
    """Where the ranks of a replica meet; rank 0 gets the listening socket, as a descriptor."""

    address: Annotated[str, Meta(max_length=255)]
    port: Annotated[int, Meta(ge=0, le=65535)]


class Feed(_Wire, frozen=True, kw_only=True, tag=41):
    """The way of commands from rank 0 to a further rank: either end of it, as a descriptor."""

    rank: _Count


class Ping(_Wire, frozen=True, kw_only=True, tag=32):
    """Say how you are: answered by `Pong` from the I/O thread, whatever the engine does."""

    number: _Count


class Pong(_Wire, frozen=True, kw_only=True, tag=33):
    """Alive; for how long the engine has been in its present step, `0` when it is in none."""

    number: _Count
    step_s: float
    load: Load | None = None
    """What it has counted, when that has changed since the last time."""


Terminal: TypeAlias = Finished | Failed | Cancelled
"""The last thing that a stage says about a request, exactly once."""
_Ranks: TypeAlias = Meeting | Feed
_Control: TypeAlias = Setup | PeerUp | Welcome | Stop | Ready | Fatal | Met | Blame | Ping | Pong
_Elsewhere: TypeAlias = PeerAt | PeerComes | PeerGone | Kill | Gone
_Asked: TypeAlias = Submit | Targets | Cancel
_Told: TypeAlias = Progress | Whole | Marks | Terminal
_Work: TypeAlias = _Asked | _Told | Chunk | Ack | Credit
Message: TypeAlias = _Control | _Elsewhere | _Ranks | OfSession | _Work
"""Everything that can be said."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Message)


def wire_text(text: str) -> str:
    """Return `text` as it can be sent: not too long, and without what is no character."""
    return text[:_MAX_TEXT].encode(errors="replace").decode()


def encode(message: Message, num_fds: int = 0, num_bulk: int = 0) -> bytes:
    """Return the frame of a message up to its bulk of `num_bulk` bytes.

    Raises `ProtocolError` when it is too long to send.
    """
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES or num_fds > MAX_FDS:
        raise ProtocolError(f"message of `{len(body)}` bytes, `{num_fds}` descriptors is too long")
    return FRAME_HEAD.pack(len(body), num_fds, num_bulk) + body


def decode(body: bytes | bytearray | memoryview) -> Message:
    """Return the message of a frame without its head; raises `ProtocolError` for anything else."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"malformed message: {error}") from error
