"""Both ends of an edge inside one process: a shelf from which tickets are served.

Memory is kept by the references to it, so there is nothing to free: a borrowed payload is readable
for as long as somebody has it, whichever end was closed.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from struct import Struct
from typing import Final

from stagemesh.connectors import _wire
from stagemesh.connectors._memory import Loan, Window, aligned_copy, is_aligned
from stagemesh.connectors.in_process import InProcessOptions
from stagemesh.errors import ClosedError
from stagemesh.spec.connector import Ticket
from stagemesh.spec.payload import Buffer, Payload

_BODY: Final = Struct(">QQ")
"""Number of the sender in this process, and of the ticket."""
_OVERHEAD_BYTES: Final = 256
"""What a payload counts beside its bytes, so that empty ones do not come without end."""
_senders: Final = itertools.count()
_shelf: Final[dict[tuple[int, int], Payload]] = {}
"""What is on its way or borrowed, by sender and ticket."""


class InProcessSender:
    """The producing end; all calls come from one thread."""

    def __init__(self, options: InProcessOptions) -> None:
        """Hold nothing yet."""
        self._own = next(_senders)
        self._window = Window(options.window_bytes)
        self._closed = False

    def put(self, payload: Payload) -> Ticket | None:
        """Keep a payload for the receiver; `None` when the window is full.

        Buffers that do not begin where a receiver may expect it are copied, others are not.
        """
        if self._closed:
            raise ClosedError("the sender is closed")
        num_bytes = _wire.layout(_wire.headers_of(payload)).num_bytes
        cost = num_bytes + _OVERHEAD_BYTES
        if not self._window.has_room(cost):
            return None
        number = self._window.take(cost)
        buffers = tuple(map(_readable, payload.buffers))
        _shelf[self._own, number] = Payload(meta=dict(payload.meta), buffers=buffers)
        return Ticket(number=number, body=_BODY.pack(self._own, number))

    def released(self, number: int) -> None:
        """Forget that payload; unknown numbers are ignored."""
        self._window.release(number)
        _shelf.pop((self._own, number), None)

    def close(self) -> None:
        """Forget all; what is borrowed is held by who has borrowed it."""
        self._closed = True
        for number in self._window.clear():
            del _shelf[self._own, number]


class InProcessReceiver:
    """The consuming end. `get` comes from one thread, releases from any."""

    def __init__(self, options: InProcessOptions, on_release: Callable[[int], None]) -> None:
        """Hold nothing."""
        del options
        self._on_release = on_release

    def get(self, ticket: Ticket) -> Payload:
        """Borrow the payload of a ticket."""
        for fd in ticket.fds:
            os.close(fd)
        if ticket.fds or ticket.bulk or len(ticket.body) != _BODY.size:
            raise ValueError("ticket is malformed")
        payload = _shelf.get(_BODY.unpack(ticket.body))
        if payload is None:
            raise ValueError("ticket is for nothing that this process holds")
        loan = Loan(pending=[ticket.number], on_release=self._on_release)
        return replace(payload, release=loan.release)

    def own(self, body: bytes) -> Payload | None:
        """Nothing lies in a body."""
        del body
        return None

    def close(self) -> None:
        """Nothing is held here."""


def _readable(buffer: Buffer) -> Buffer:
    data = buffer.data if is_aligned(buffer.data) else aligned_copy(buffer.data)
    return replace(buffer, data=data.toreadonly())
