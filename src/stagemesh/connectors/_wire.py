"""The body of a ticket: where a payload lies and what its buffers are, checked field by field.

Offsets of buffers are not on the wire: both ends derive them from the shapes by one layout rule, so
a malformed body can only name a place, and that place is checked against the memory it points into.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import prod
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, Struct

from stagemesh.spec.payload import ALIGNMENT, DTYPE_BYTES, Buffer, MetaValue, Payload

INLINE_BYTES: Final = 16 * 1024
"""Largest payload, padding included, that lies in the ticket itself."""
MAX_BODY_BYTES: Final = 1024 * 1024
"""Largest ticket; what is longer is bulk data and belongs into a buffer."""
MAX_PAYLOAD_BYTES: Final = 1 << 36
"""Largest payload."""
_MAX_BUFFERS: Final = 256
_MAX_DIMS: Final = 8
_MAX_NAME: Final = 256
MAX_GONE: Final = 256

_Size = Annotated[int, Meta(ge=0, le=MAX_PAYLOAD_BYTES)]


class _Wire(Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """Base of what is sent: its fields in order, and no more."""


class BufferHeader(_Wire, frozen=True, kw_only=True):
    """One buffer of a payload."""

    name: Annotated[str, Meta(max_length=_MAX_NAME)]
    dtype: str
    shape: Annotated[tuple[_Size, ...], Meta(max_length=_MAX_DIMS)]


class Inline(_Wire, frozen=True, kw_only=True, tag=0):
    """The bytes lie here."""

    data: Annotated[memoryview, Meta(max_length=INLINE_BYTES)]


class InArena(_Wire, frozen=True, kw_only=True, tag=1):
    """The bytes lie in an arena, whose descriptor comes with the first ticket that names it."""

    arena: Annotated[int, Meta(ge=0)]
    arena_bytes: _Size
    offset: _Size


class InBulk(_Wire, frozen=True, kw_only=True, tag=2):
    """The bytes travel behind the ticket."""


class InStore(_Wire, frozen=True, kw_only=True, tag=3):
    """The bytes lie in a store, under the ticket's number in this space of keys."""

    space: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]


Place: TypeAlias = Inline | InArena | InBulk | InStore
"""Where the bytes are; each connector has its own, beside `Inline`."""


class Header(_Wire, frozen=True, kw_only=True):
    """The whole body."""

    meta: dict[str, MetaValue]
    buffers: Annotated[tuple[BufferHeader, ...], Meta(max_length=_MAX_BUFFERS)]
    place: Place
    gone: Annotated[tuple[int, ...], Meta(max_length=MAX_GONE)] = ()
    """Arenas that no ticket will name again."""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Header)


def encode(header: Header) -> bytes:
    """Write a body; raises `ValueError` when the metadata is too much or of a foreign type."""
    try:
        body = _encoder.encode(header)
    except (TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"metadata cannot be carried: {error}") from error
    if len(body) > MAX_BODY_BYTES:
        raise ValueError(
            f"metadata of `{len(body)}` bytes is too much (at most `{MAX_BODY_BYTES}`)"
        )
    return body


def decode(body: bytes) -> tuple[Header, Layout]:
    """Read a body, and lay its buffers out.

    Raises `ValueError` when anything in it is not as it should be. Bytes that lie in it stay there.
    """
    if len(body) > MAX_BODY_BYTES:
        raise ValueError(f"ticket of `{len(body)}` bytes is too long")
    try:
        header = _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise ValueError(f"ticket is malformed: {error}") from error
    return header, layout(header.buffers)


def own(header: Header, laid: Layout) -> Payload | None:
    """Return the payload that lies in a body, in its memory; `None` when it lies elsewhere."""
    if not isinstance(header.place, Inline):
        return None
    if header.place.data.nbytes != laid.num_bytes:
        raise ValueError("ticket does not hold as many bytes as it describes")
    return Payload(meta=header.meta, buffers=buffers_in(header.buffers, laid, header.place.data))


def headers_of(payload: Payload) -> tuple[BufferHeader, ...]:
    """Describe the buffers of a payload; raises `ValueError` for what cannot be carried."""
    headers = tuple(
        [
            BufferHeader(name=buffer.name, dtype=buffer.dtype, shape=tuple(buffer.shape))
            for buffer in payload.buffers
        ]
    )
    for buffer, size in zip(payload.buffers, layout(headers).sizes, strict=True):
        data = buffer.data
        if data.format != "B" or data.ndim != 1 or not data.c_contiguous:
            raise ValueError(f"buffer `{buffer.name}` is not a flat row of bytes")
        if data.nbytes != size:
            raise ValueError(
                f"buffer `{buffer.name}` has `{data.nbytes}` bytes, its shape asks for `{size}`"
            )
    return headers


def _check_headers(headers: tuple[BufferHeader, ...]) -> None:
    """Raise `ValueError` unless these buffers are within all bounds."""
    if len({header.name for header in headers}) != len(headers):
        raise ValueError("two buffers have one name")
    if len(headers) > _MAX_BUFFERS:
        raise ValueError(f"`{len(headers)}` buffers are too many (at most `{_MAX_BUFFERS}`)")
    for header in headers:
        if header.dtype not in DTYPE_BYTES:
            raise ValueError(f"unknown dtype `{header.dtype}`")
        too_big = len(header.name) > _MAX_NAME or len(header.shape) > _MAX_DIMS
        if too_big or min(header.shape, default=0) < 0:
            raise ValueError(f"buffer `{header.name[:_MAX_NAME]}` has an impossible name or shape")
        if _num_bytes(header) > MAX_PAYLOAD_BYTES:
            raise ValueError(
                f"buffer `{header.name}` is too big (at most `{MAX_PAYLOAD_BYTES}` bytes)"
            )


def _num_bytes(header: BufferHeader) -> int:
    """Bytes that the shape and dtype ask for."""
    return prod(header.shape) * DTYPE_BYTES[header.dtype]


class Layout(NamedTuple):
    """Where the buffers of a payload lie."""

    offsets: tuple[int, ...]
    """Where each begins."""
    sizes: tuple[int, ...]
    """Bytes of each."""
    num_bytes: int
    """Bytes of all together, from the first to the last."""


@lru_cache(maxsize=64)  # the chunks of a stream look alike
def layout(headers: tuple[BufferHeader, ...]) -> Layout:
    """Lay buffers out, each aligned; raises `ValueError` unless they are within all bounds."""
    _check_headers(headers)
    sizes = tuple([_num_bytes(header) for header in headers])
    offsets, end = [], 0
    for size in sizes:
        start = -(-end // ALIGNMENT) * ALIGNMENT
        offsets.append(start)
        end = start + size
    return Layout(offsets=tuple(offsets), sizes=sizes, num_bytes=end)


def buffers_in(
    headers: tuple[BufferHeader, ...], laid: Layout, memory: memoryview
) -> tuple[Buffer, ...]:
    """Cut `memory`, which begins with the first buffer, into the buffers; they are read-only."""
    readable = memory.toreadonly()
    if len(headers) == 1:
        (header,) = headers
        data = readable[: laid.num_bytes]
        return (Buffer(name=header.name, dtype=header.dtype, shape=header.shape, data=data),)
    return tuple(
        [
            Buffer(
                name=header.name,
                dtype=header.dtype,
                shape=header.shape,
                data=readable[offset : offset + size],
            )
            for header, offset, size in zip(headers, laid.offsets, laid.sizes, strict=True)
        ]
    )


def parts_of(payload: Payload, offsets: tuple[int, ...]) -> Iterable[tuple[int, memoryview]]:
    """Pair every buffer's bytes with their offset, leaving out empty ones."""
    for buffer, offset in zip(payload.buffers, offsets, strict=True):
        if buffer.data.nbytes:
            yield offset, buffer.data


def inline(payload: Payload, offsets: tuple[int, ...], num_bytes: int) -> Inline:
    """Put the bytes of a small payload where they lie in the ticket."""
    if len(payload.buffers) == 1:
        return Inline(data=payload.buffers[0].data)
    data = bytearray(num_bytes)
    for offset, part in parts_of(payload, offsets):
        data[offset : offset + part.nbytes] = part
    return Inline(data=memoryview(data))
