"""Both ends of a shared-memory edge: small payloads ride in the ticket, others lie in the arena.

A payload of more than a quarter of the arena gets a memory file of its own, so that one giant
cannot starve every other stream of the edge.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stagemesh.connectors import _wire
from stagemesh.connectors._arena import Arena, map_sealed, one_off
from stagemesh.connectors.shared_memory import SharedMemoryOptions
from stagemesh.errors import ClosedError
from stagemesh.spec.connector import Ticket
from stagemesh.spec.payload import ALIGNMENT, Payload

_GIANT_SHARE: Final = 4


class SharedMemorySender:
    """The producing end; all calls come from one thread."""

    def __init__(self, options: SharedMemoryOptions) -> None:
        """Take no memory before the first payload that needs it."""
        self._options = options
        self._arena: Arena | None = None
        self._announced = False
        self._closed = False
        self._numbers = itertools.count()
        self._places: dict[int, int] = {}

    def put(self, payload: Payload) -> Ticket | None:
        """Copy a payload out; `None` when the arena has no gap that is wide enough."""
        if self._closed:
            raise ClosedError("the sender is closed")
        headers = _wire.headers_of(payload)
        offsets, num_bytes = _wire.layout(headers)
        if num_bytes > _wire.MAX_PAYLOAD_BYTES:
            raise ValueError(f"payload of `{num_bytes}` bytes is too big")
        parts = _wire.parts_of(payload, offsets)
        if num_bytes <= _wire.INLINE_BYTES:
            data = bytearray(num_bytes)
            for offset, part in parts:
                data[offset : offset + part.nbytes] = part
            body = _wire.encode(payload, headers, _wire.Inline(bytes(data)))
            return Ticket(number=next(self._numbers), body=body)
        if num_bytes > self._options.arena_bytes // _GIANT_SHARE:
            body = _wire.encode(payload, headers, _wire.OneOff())
            return Ticket(number=next(self._numbers), body=body, fds=(one_off(parts, num_bytes),))
        arena = self._arena = self._arena or Arena(self._options.arena_bytes)
        place = arena.place(num_bytes)
        if place is None:
            return None
        try:
            body = _wire.encode(payload, headers, _wire.InArena(place, arena.num_bytes))
        except ValueError:
            arena.free(place)
            raise
        for offset, part in parts:
            arena.write(place + offset, part)
        number = next(self._numbers)
        self._places[number] = place
        fds = () if self._announced else (os.dup(arena.fd),)
        self._announced = True
        return Ticket(number=number, body=body, fds=fds)

    def released(self, number: int) -> None:
        """Take the room of that ticket back; unknown numbers are ignored."""
        place = self._places.pop(number, None)
        if place is not None and self._arena is not None:
            self._arena.free(place)

    def close(self) -> None:
        """Unmap the arena; the receiver's mapping lives on until it lets go."""
        self._closed = True
        self._places.clear()
        if self._arena is not None:
            self._arena.close()
            self._arena = None


@dataclass(slots=True)
class _Loan:
    """Tells the producer once that a payload was given back, from whatever thread."""

    pending: list[int]
    on_release: Callable[[int], None]

    def release(self) -> None:
        """Give the payload back."""
        try:
            number = self.pending.pop()  # atomic: of two threads one gets it
        except IndexError:
            return
        self.on_release(number)


class SharedMemoryReceiver:
    """The consuming end. `get` comes from one thread, releases from any."""

    def __init__(self, options: SharedMemoryOptions, on_release: Callable[[int], None]) -> None:
        """Map nothing before the first ticket that asks for it; sizes are checked against files."""
        del options
        self._on_release = on_release
        self._arena: memoryview | None = None

    def get(self, ticket: Ticket) -> Payload:
        """Borrow the payload of a ticket; its descriptors are closed, mapped or not."""
        try:
            header = _wire.decode(ticket.body)
            _, num_bytes = _wire.layout(header.buffers)
            memory = self._locate(header.place, num_bytes, ticket.fds)
        finally:
            for fd in ticket.fds:
                os.close(fd)
        loan = _Loan([ticket.number], self._on_release)
        buffers = _wire.buffers_in(header.buffers, memory)
        return Payload(meta=header.meta, buffers=buffers, release=loan.release)

    def _locate(
        self,
        place: _wire.Inline | _wire.InArena | _wire.OneOff,
        num_bytes: int,
        fds: tuple[int, ...],
    ) -> memoryview:
        match place:
            case _wire.Inline():
                _expect(len(fds) == 0, "ticket came with a descriptor that it does not need")
                memory = _aligned(place.data)
            case _wire.OneOff():
                _expect(len(fds) == 1, "ticket came without its memory file")
                memory = map_sealed(fds[0], num_bytes)
            case _wire.InArena():
                _expect(place.offset % ALIGNMENT == 0, "ticket points to an odd place")
                arena = self._mapped(place.arena_bytes, fds)
                memory = arena[place.offset : place.offset + num_bytes]
        _expect(memory.nbytes == num_bytes, "ticket points outside the memory of this edge")
        return memory

    def _mapped(self, arena_bytes: int, fds: tuple[int, ...]) -> memoryview:
        if self._arena is None:
            _expect(len(fds) == 1, "first ticket into the arena came without its memory file")
            self._arena = map_sealed(fds[0], arena_bytes)
        else:
            _expect(len(fds) == 0, "ticket came with a second arena")
        _expect(self._arena.nbytes == arena_bytes, "ticket is for an arena of another size")
        return self._arena

    def close(self) -> None:
        """Let go of the arena; a payload that is still borrowed keeps the mapping alive."""
        self._arena = None


def _expect(holds: bool, message: str) -> None:  # noqa: FBT001  the claim itself
    if not holds:
        raise ValueError(message)


def _aligned(data: bytes) -> memoryview:
    """Copy `data` to memory that begins on a multiple of `ALIGNMENT`."""
    room = bytearray(len(data) + ALIGNMENT)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(room)) % ALIGNMENT
    room[start : start + len(data)] = data
    return memoryview(room)[start : start + len(data)]
