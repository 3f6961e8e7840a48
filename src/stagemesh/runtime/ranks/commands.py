"""What rank 0 says to the other ranks of its replica: the calls of its engine, in order.

A call that concerns one request is told when rank 0 has made it, with whether it raised: that is
the same everywhere, or the ranks are no longer of one mind. What may hold collectives is told
before, because rank 0 alone would wait in them for ever.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from stagemesh.spec.payload import MetaValue


class _Command(Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """Base of all: the fields in order, and no more."""


class Added(_Command, frozen=True, kw_only=True, tag=1):
    """A request was added."""

    rid: str
    params: dict[str, object]
    raised: bool
    session: str | None = None


class Head(_Command, frozen=True, kw_only=True):
    """A buffer without its bytes, which are found at `start` of where the command came in."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    num_bytes: int


class Appended(_Command, frozen=True, kw_only=True, tag=2):
    """An input was given."""

    rid: str
    meta: dict[str, MetaValue]
    heads: list[Head]
    last: bool
    raised: bool


class Paused(_Command, frozen=True, kw_only=True, tag=3):
    """A request was held back."""

    rid: str
    raised: bool


class Resumed(_Command, frozen=True, kw_only=True, tag=4):
    """A request went on."""

    rid: str
    raised: bool


class Forgotten(_Command, frozen=True, kw_only=True, tag=5):
    """A request was cancelled."""

    rid: str
    raised: bool


class Entered(_Command, frozen=True, kw_only=True, tag=9):
    """A session was opened."""

    rid: str
    raised: bool


class Exited(_Command, frozen=True, kw_only=True, tag=10):
    """A session was closed."""

    rid: str
    raised: bool


class Step(_Command, frozen=True, kw_only=True, tag=6):
    """Make a step."""


class Call(_Command, frozen=True, kw_only=True, tag=7):
    """Run a control action."""

    name: str
    args: dict[str, MetaValue]


class Close(_Command, frozen=True, kw_only=True, tag=8):
    """Close the engine and leave."""


OfRequest: TypeAlias = Added | Appended | Paused | Resumed | Forgotten
"""What rank 0 has done for one request already."""
OfSession: TypeAlias = Entered | Exited
"""What it has done for one session already."""
Command: TypeAlias = OfRequest | OfSession | Step | Call | Close
"""Everything that can be said."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[Command])


def encode(commands: list[Command]) -> bytes:
    """Return commands as bytes."""
    return _encoder.encode(commands)


def decode(data: memoryview) -> list[Command]:
    """Return commands; raises `msgspec.MsgspecError` for anything else."""
    return _decoder.decode(data)
