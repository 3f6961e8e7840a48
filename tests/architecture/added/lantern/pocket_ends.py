"""Both ends of the connector `pocket`."""

from __future__ import annotations

import itertools
import json
import mmap
import operator
import os
from collections.abc import Callable, Mapping
from typing import Final

from stagemesh.spec.connector import Ticket
from stagemesh.spec.payload import ALIGNMENT, DTYPE_BYTES, Buffer, Payload

ROOM: Final = 16
"""Payloads that are on their way or borrowed at most."""
_PREFIX_BYTES: Final = 4


class PocketSender:
    """Puts a header in JSON and all bytes into the ticket."""

    def __init__(self, options: object) -> None:
        """There is nothing to choose."""
        del options
        self._numbers = itertools.count()
        self._out: set[int] = set()

    def put(self, payload: Payload) -> Ticket | None:
        """Copy a payload out."""
        for buffer in payload.buffers:
            _check(buffer)
        if len(self._out) == ROOM:
            return None
        names = [(buffer.name, buffer.dtype, buffer.shape) for buffer in payload.buffers]
        header = json.dumps([dict(payload.meta), names]).encode()
        prefix = len(header).to_bytes(_PREFIX_BYTES, "little")
        number = next(self._numbers)
        self._out.add(number)
        data = [buffer.data for buffer in payload.buffers]
        return Ticket(number=number, body=b"".join([prefix, header, *data]))

    def released(self, number: int) -> None:
        """Have room for one more."""
        self._out.discard(number)

    def close(self) -> None:
        """Nothing is held."""


class PocketReceiver:
    """Copies the bytes of a ticket to where they are aligned."""

    def __init__(self, options: object, on_release: Callable[[int], None]) -> None:
        """Tell `on_release` about each payload that is given back."""
        del options
        self._on_release = on_release

    def get(self, ticket: Ticket) -> Payload:
        """Turn a ticket into a borrowed payload."""
        for fd in ticket.fds:
            os.close(fd)
        if ticket.fds:
            raise ValueError("a ticket of this connector brings no descriptors")
        try:
            meta, buffers = _read(ticket.body)
        except (KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(f"no ticket of this connector: {error!r}") from error
        left = [ticket.number]

        def release() -> None:
            if left:
                self._on_release(left.pop())

        return Payload(meta=meta, buffers=buffers, release=release)

    def own(self, body: bytes) -> Payload | None:
        """Leave everything to `get`."""
        del body
        return None

    def close(self) -> None:
        """Borrowed payloads hold their own memory."""


def _read(body: bytes) -> tuple[Mapping[str, None], tuple[Buffer, ...]]:
    start = _PREFIX_BYTES + int.from_bytes(body[:_PREFIX_BYTES], "little")
    meta, names = json.loads(body[_PREFIX_BYTES:start])
    buffers = []
    for name, dtype, shape in names:
        extents = tuple(operator.index(extent) for extent in shape)
        empty = Buffer(name=name, dtype=dtype, shape=extents, data=memoryview(b""))
        end = start + empty.num_bytes
        buffer = Buffer(name=name, dtype=dtype, shape=empty.shape, data=_aligned(body[start:end]))
        _check(buffer)
        buffers.append(buffer)
        start = end
    return dict(meta), tuple(buffers)


def _aligned(data: bytes) -> memoryview:
    memory = mmap.mmap(-1, max(len(data), ALIGNMENT))
    memory[: len(data)] = data
    return memoryview(memory)[: len(data)].toreadonly()


def _check(buffer: Buffer) -> None:
    sizes = all(extent >= 0 for extent in buffer.shape)
    if buffer.dtype not in DTYPE_BYTES or not sizes or not buffer.data.c_contiguous:
        raise ValueError(f"buffer `{buffer.name}` cannot be carried")
    if buffer.data.nbytes != buffer.num_bytes:
        raise ValueError(f"buffer `{buffer.name}` is not as large as it says")
