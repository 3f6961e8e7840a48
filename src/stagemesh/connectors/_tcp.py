"""Both ends of an edge without shared memory: the ticket describes a payload, its bytes follow."""

from __future__ import annotations

import os
from collections.abc import Callable

from stagemesh.connectors import _wire
from stagemesh.connectors._memory import Loan, Spare, Window, aligned_copy, is_aligned
from stagemesh.connectors.tcp import TcpOptions
from stagemesh.errors import ClosedError
from stagemesh.spec.connector import Ticket
from stagemesh.spec.payload import Payload


class TcpSender:
    """The producing end; all calls come from one thread."""

    def __init__(self, options: TcpOptions) -> None:
        """Hold nothing yet."""
        self._max_payload_bytes = options.max_payload_bytes
        self._window = Window(options.window_bytes)
        self._lent: dict[int, memoryview] = {}
        self._spare = Spare(options.window_bytes)
        self._closed = False

    def put(self, payload: Payload) -> Ticket | None:
        """Copy a payload out; `None` when the window is full before something is released."""
        if self._closed:
            raise ClosedError("the sender is closed")
        headers = _wire.headers_of(payload)
        offsets, _, num_bytes = _wire.layout(headers)
        if num_bytes > self._max_payload_bytes:
            raise ValueError(
                f"payload of `{num_bytes}` bytes is too big (`max_payload_bytes` is"
                f" `{self._max_payload_bytes}`)"
            )
        is_small = num_bytes <= _wire.INLINE_BYTES
        place = _wire.inline(payload, offsets, num_bytes) if is_small else _wire.InBulk()
        meta = dict(payload.meta)
        body = _wire.encode(_wire.Header(meta=meta, buffers=headers, place=place))
        cost = len(body) + (0 if is_small else num_bytes)
        if not self._window.has_room(cost):
            return None
        number = self._window.take(cost)
        if is_small:
            return Ticket(number=number, body=body)
        memory = self._lent[number] = self._spare.take(num_bytes)
        end = 0
        for offset, part in _wire.parts_of(payload, offsets):
            memory[end:offset] = bytes(offset - end)
            end = offset + part.nbytes
            memory[offset:end] = part
        memory[end:num_bytes] = bytes(num_bytes - end)
        return Ticket(number=number, body=body, bulk=(memory[:num_bytes].toreadonly(),))

    def released(self, number: int) -> None:
        """Open the window by that ticket; unknown numbers are ignored."""
        self._window.release(number)
        memory = self._lent.pop(number, None)
        if memory is not None:
            self._spare.give(memory)

    def close(self) -> None:
        """Count nothing any more; memory goes with the tickets that hold it."""
        self._closed = True
        self._window.clear()
        self._lent.clear()
        self._spare.clear()


class TcpReceiver:
    """The consuming end. `get` comes from one thread, releases from any."""

    def __init__(self, options: TcpOptions, on_release: Callable[[int], None]) -> None:
        """Take payloads up to the size that the options name."""
        self._max_payload_bytes = options.max_payload_bytes
        self._on_release = on_release

    def get(self, ticket: Ticket) -> Payload:
        """Borrow the payload of a ticket; the memory behind it is held by the payload alone."""
        for fd in ticket.fds:
            os.close(fd)
        header, laid = self._decoded(ticket.body)
        memory = _locate(header.place, ticket)
        if memory.nbytes != laid.num_bytes:
            raise ValueError(f"`{memory.nbytes}` bytes came for a payload of `{laid.num_bytes}`")
        loan = Loan(pending=[ticket.number], on_release=self._on_release)
        buffers = _wire.buffers_in(header.buffers, laid, memory)
        return Payload(meta=header.meta, buffers=buffers, release=loan.release)

    def own(self, body: bytes) -> Payload | None:
        """Return a small payload, which rides in its ticket."""
        return _wire.own(*self._decoded(body))

    def close(self) -> None:
        """Nothing is held here."""

    def _decoded(self, body: bytes) -> tuple[_wire.Header, _wire.Layout]:
        header, laid = _wire.decode(body)
        if laid.num_bytes > self._max_payload_bytes:
            raise ValueError(f"ticket is for `{laid.num_bytes}` bytes, which is too much")
        return header, laid


def _locate(place: _wire.Place, ticket: Ticket) -> memoryview:
    match place, ticket.fds, ticket.bulk:
        case _wire.Inline(data=data), (), ():
            return aligned_copy(data)
        case _wire.InBulk(), (), (piece,):
            return piece if is_aligned(piece) else aligned_copy(piece)
    raise ValueError("ticket does not come with what it describes")
