"""Both ends of a shared-memory edge: small payloads ride in the ticket, others lie in the arena.

A payload of more than a quarter of the arena gets an arena of its own, so that one giant cannot
starve every other stream of the edge. Those are kept and used again by later payloads of about that
size: memory that both ends have mapped and touched costs one copy, fresh memory several. Together
with those that are kept they stay within a budget.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Final

from stagemesh.connectors import _wire
from stagemesh.connectors._arena import PAGE_BYTES, Arena, map_sealed
from stagemesh.connectors._memory import Loan, Window, aligned_copy, size_class
from stagemesh.connectors.shared_memory import SharedMemoryOptions
from stagemesh.errors import ClosedError, ConnectorError
from stagemesh.spec.connector import Ticket
from stagemesh.spec.payload import Payload

_GIANT_SHARE: Final = 4
_SPARE_BYTES: Final = 64 * 1024 * 1024
"""Most memory of one edge that is kept for giants to come, beside the one that was used last."""
_COMMON: Final = 0
"""Number of the arena that payloads share."""


class SharedMemorySender:
    """The producing end; all calls come from one thread."""

    def __init__(self, options: SharedMemoryOptions) -> None:
        """Take no memory before the first payload that needs it."""
        self._common_bytes = options.arena_bytes
        self._giant_budget = _whole_pages(options.giant_bytes)
        self._closed = False
        self._window = Window(options.arena_bytes)
        self._arena_numbers = itertools.count(_COMMON + 1)
        self._arenas: dict[int, Arena] = {}
        self._spare: list[int] = []
        self._gone: list[int] = []
        self._places: dict[int, tuple[int, int]] = {}

    def put(self, payload: Payload) -> Ticket | None:
        """Copy a payload out; `None` when there is no room before something is released."""
        if self._closed:
            raise ClosedError("the sender is closed")
        headers = _wire.headers_of(payload)
        offsets, _, num_bytes = _wire.layout(headers)
        if num_bytes > _wire.MAX_PAYLOAD_BYTES:
            raise ValueError(f"payload of `{num_bytes}` bytes is too big")
        if num_bytes <= _wire.INLINE_BYTES:
            if not self._window.has_room(num_bytes):
                return None
            body = self._body(payload, headers, _wire.inline(payload, offsets, num_bytes))
            return Ticket(number=self._window.take(len(body)), body=body)
        try:
            number = self._arena_for(num_bytes)
        except (OSError, MemoryError) as error:
            raise ConnectorError(
                f"no memory for a payload of `{num_bytes}` bytes: {error}"
            ) from error
        if number is None:
            return None
        arena = self._arenas[number]
        place = arena.place(num_bytes)
        if place is None:
            return None
        try:
            where = _wire.InArena(arena=number, arena_bytes=arena.num_bytes, offset=place)
            body = self._body(payload, headers, where)
        except ValueError:
            self._give_back(number, place)
            raise
        for offset, part in _wire.parts_of(payload, offsets):
            arena.write(place + offset, part)
        return self._ticket(number, place, body)

    def released(self, number: int) -> None:
        """Take the room of that ticket back; unknown numbers are ignored."""
        self._window.release(number)
        place = self._places.pop(number, None)
        if place is not None:
            self._give_back(*place)

    def close(self) -> None:
        """Unmap all arenas; the receiver's mappings live on until it lets go."""
        self._closed = True
        self._places.clear()
        for arena in self._arenas.values():
            arena.close()
        self._arenas.clear()

    def _body(
        self,
        payload: Payload,
        headers: tuple[_wire.BufferHeader, ...],
        place: _wire.Inline | _wire.InArena,
    ) -> bytes:
        gone = tuple(self._gone[: _wire.MAX_GONE])
        meta = dict(payload.meta)
        body = _wire.encode(_wire.Header(meta=meta, buffers=headers, place=place, gone=gone))
        del self._gone[: len(gone)]
        return body

    def _ticket(self, arena: int, place: int, body: bytes) -> Ticket:
        number = self._window.take(len(body))
        self._places[number] = (arena, place)
        return Ticket(number=number, body=body, fds=self._arenas[arena].announce())

    def _arena_for(self, num_bytes: int) -> int | None:
        """The arena where a payload of that size belongs, made if need be and there is room.

        There is none only while giants are lent, so that a release is sure to come.
        """
        if num_bytes <= self._common_bytes // _GIANT_SHARE:
            if _COMMON not in self._arenas:
                self._arenas[_COMMON] = Arena(self._common_bytes)
            return _COMMON
        if num_bytes > self._giant_budget:
            raise ValueError(
                f"payload of `{num_bytes}` bytes is too big (`giant_bytes` is"
                f" `{self._giant_budget}`)"
            )
        wanted = min(size_class(num_bytes), self._giant_budget)
        for number in self._spare:
            if self._arenas[number].num_bytes == wanted:
                self._spare.remove(number)
                return number
        giants = sum(arena.num_bytes for key, arena in self._arenas.items() if key != _COMMON)
        room = self._giant_budget - (giants - self._spare_bytes()) - wanted
        if room < 0:
            return None
        self._trim(room)
        number = next(self._arena_numbers)
        self._arenas[number] = Arena(wanted, populate=True)
        return number

    def _give_back(self, arena: int, place: int) -> None:
        self._arenas[arena].free(place)
        if arena == _COMMON:
            return
        self._spare.append(arena)
        self._trim(max(_SPARE_BYTES, self._arenas[arena].num_bytes))

    def _spare_bytes(self) -> int:
        return sum(self._arenas[number].num_bytes for number in self._spare)

    def _trim(self, most: int) -> None:
        """Give up the oldest spare memory beyond `most` bytes."""
        while self._spare_bytes() > most:
            number = self._spare.pop(0)
            oldest = self._arenas.pop(number)
            if oldest.announced:
                self._gone.append(number)
            oldest.close()


def _whole_pages(num_bytes: int) -> int:
    return -(-num_bytes // PAGE_BYTES) * PAGE_BYTES


class SharedMemoryReceiver:
    """The consuming end. `get` comes from one thread, releases from any."""

    def __init__(self, options: SharedMemoryOptions, on_release: Callable[[int], None]) -> None:
        """Map nothing before a ticket asks for it; sizes are checked against the files."""
        del options
        self._on_release = on_release
        self._arenas: dict[int, memoryview] = {}
        self._unmapped: dict[int, int] = {}
        """Files that could not be mapped: no later ticket brings them again."""

    def get(self, ticket: Ticket) -> Payload:
        """Borrow the payload of a ticket; its descriptors are closed, mapped or not."""
        fds = list(ticket.fds)
        try:
            header, laid = _wire.decode(ticket.body)
            for number in header.gone:
                self._forget(number)
            _expect(len(ticket.bulk) == 0, "ticket came with bytes that it does not need")
            memory = self._locate(header.place, laid.num_bytes, fds)
        finally:
            for fd in fds:
                os.close(fd)
        loan = Loan(pending=[ticket.number], on_release=self._on_release)
        buffers = _wire.buffers_in(header.buffers, laid, memory)
        return Payload(meta=header.meta, buffers=buffers, release=loan.release)

    def own(self, body: bytes) -> Payload | None:
        """Return a small payload, which rides in its ticket."""
        header, laid = _wire.decode(body)
        for number in header.gone:
            self._forget(number)
        return _wire.own(header, laid)

    def close(self) -> None:
        """Let go of the arenas; a payload that is still borrowed keeps its mapping alive."""
        self._arenas.clear()
        for number in list(self._unmapped):
            self._forget(number)

    def _locate(self, place: _wire.Place, num_bytes: int, fds: list[int]) -> memoryview:
        match place:
            case _wire.Inline(data=data):
                _expect(len(fds) == 0, "ticket came with a descriptor that it does not need")
                memory = aligned_copy(data)
            case _wire.InArena(offset=offset):
                _expect(offset % PAGE_BYTES == 0, "ticket points to an odd place")
                memory = self._arena(place, fds)[offset : offset + num_bytes]
            case _:
                raise ValueError("ticket is of another connector")
        _expect(memory.nbytes == num_bytes, "ticket points outside the memory of this edge")
        return memory

    def _arena(self, place: _wire.InArena, fds: list[int]) -> memoryview:
        number = place.arena
        arena = self._arenas.get(number)
        if arena is None:
            if number in self._unmapped:
                _expect(len(fds) == 0, "ticket came with a second file for its arena")
            else:
                _expect(len(fds) == 1, "first ticket into an arena came without its memory file")
                self._unmapped[number] = fds.pop()
            return self._map(number, place.arena_bytes)
        _expect(len(fds) == 0, "ticket came with a second file for its arena")
        _expect(arena.nbytes == place.arena_bytes, "ticket is for an arena of another size")
        return arena

    def _map(self, number: int, num_bytes: int) -> memoryview:
        """Map a file; one that cannot be mapped now is kept, and tried again by later tickets."""
        try:
            arena = map_sealed(self._unmapped[number], num_bytes)
        except OSError as error:
            raise ConnectorError(
                f"no memory for an arena of `{num_bytes}` bytes: {error}"
            ) from error
        except ValueError:
            self._forget(number)
            raise
        self._forget(number)
        self._arenas[number] = arena
        return arena

    def _forget(self, number: int) -> None:
        self._arenas.pop(number, None)
        fd = self._unmapped.pop(number, None)
        if fd is not None:
            os.close(fd)


def _expect(holds: bool, message: str) -> None:  # noqa: FBT001  the claim comes first
    if not holds:
        raise ValueError(message)
