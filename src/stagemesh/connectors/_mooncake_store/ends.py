"""Both ends of an edge through a Mooncake store: a ticket says under which key a payload lies.

The store is asked only for what a ticket has announced, so nobody polls. An object lies in the
segment of the process that wrote it, pinned, until it is released: the sender removes it then, the
receiver removes what a sender that went has left, and with its process the segment goes as well.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from typing import Final

from stagemesh.connectors import _wire
from stagemesh.connectors._memory import Loan, Window, aligned_copy
from stagemesh.connectors._mooncake_store.client import NO_ROOM, hold, let_go
from stagemesh.connectors.mooncake_store import MooncakeStoreOptions
from stagemesh.errors import ClosedError, ConnectorError
from stagemesh.spec.connector import Ticket
from stagemesh.spec.payload import ALIGNMENT, Payload

_PADDING: Final = bytes(ALIGNMENT)


class MooncakeStoreSender:
    """The producing end; all calls come from one thread, and may wait for the store."""

    def __init__(self, options: MooncakeStoreOptions) -> None:
        """Hold nothing in the store yet."""
        self._options = options
        self._client = hold(options, self)
        self._space = uuid.uuid4().hex
        self._window = Window(options.segment)
        self._stored: dict[int, str] = {}
        self._left: set[str] = set()
        self._closed = False

    def put(self, payload: Payload) -> Ticket | None:
        """Write a payload; `None` when there is no room before something is released."""
        if self._closed:
            raise ClosedError("the sender is closed")
        headers = _wire.headers_of(payload)
        offsets, _, num_bytes = _wire.layout(headers)
        self._check_size(num_bytes)
        is_small = num_bytes <= _wire.INLINE_BYTES
        place = (
            _wire.inline(payload, offsets, num_bytes)
            if is_small
            else _wire.InStore(space=self._space)
        )
        meta = dict(payload.meta)
        body = _wire.encode(_wire.Header(meta=meta, buffers=headers, place=place))
        cost = len(body) + (0 if is_small else num_bytes)
        if not self._window.has_room(cost):
            return None
        number = self._window.take(cost)
        if is_small or self._store(number, num_bytes, list(_wire.parts_of(payload, offsets))):
            return Ticket(number=number, body=body)
        return None

    def released(self, number: int) -> None:
        """Remove that payload; unknown numbers are ignored."""
        self._window.release(number)
        key = self._stored.pop(number, None)
        if key is not None:
            self._remove({key})

    def close(self) -> None:
        """Remove everything, carried or not."""
        if self._closed:
            return
        self._closed = True
        self._window.clear()
        self._remove({*self._stored.values(), *self._left})
        self._stored.clear()
        let_go(self._options, self)

    def _check_size(self, num_bytes: int) -> None:
        limits = {"segment": self._options.segment, "localbuf": self._options.localbuf}
        name = min(limits, key=limits.__getitem__)
        if num_bytes > limits[name]:
            raise ValueError(
                f"payload of `{num_bytes}` bytes is too big (`{name}` is `{limits[name]}`)"
            )

    def _store(self, number: int, num_bytes: int, placed: list[tuple[int, memoryview]]) -> bool:
        """Write the bytes; whether there was room. They do not stay counted unless they lie."""
        key = _key(self._space, number)
        parts: list[memoryview | bytes] = []
        end = 0
        for offset, part in (*placed, (num_bytes, memoryview(b""))):
            parts += [one for one in (_PADDING[: offset - end], part) if len(one)]
            end = offset + part.nbytes
        try:
            code = self._client.put(key, parts)
        except ConnectorError:
            self._window.release(number)
            raise
        if code == 0:
            self._stored[number] = key
            return True
        self._window.release(number)
        if code == NO_ROOM and not self._window.is_empty:
            return False
        if code != NO_ROOM:
            self._left.add(key)  # it may lie there all the same
        raise ConnectorError(
            f"the store at `{self._options.master}` did not take a payload of `{num_bytes}` bytes"
            f" (code `{code}`{', no room' if code == NO_ROOM else ''})"
        )

    def _remove(self, keys: set[str]) -> None:
        """Remove from the store; what it does not answer for is tried again with the next."""
        self._left = set(self._client.remove(sorted(keys | self._left)))


class MooncakeStoreReceiver:
    """The consuming end. `get` comes from one thread and may wait, releases come from any."""

    def __init__(self, options: MooncakeStoreOptions, on_release: Callable[[int], None]) -> None:
        """Read nothing before a ticket asks for it."""
        self._options = options
        self._client = hold(options, self)
        self._on_release = on_release
        self._spaces: set[str] = set()
        self._closed = False

    def get(self, ticket: Ticket) -> Payload:
        """Read the payload of a ticket into memory of its own."""
        for fd in ticket.fds:
            os.close(fd)
        if ticket.fds or ticket.bulk:
            raise ValueError("ticket came with what it does not need")
        header, laid = _wire.decode(ticket.body)
        match header.place:
            case _wire.Inline(data=data):
                memory = aligned_copy(data)
            case _wire.InStore(space=space):
                self._spaces.add(space)
                memory = self._client.get(_key(space, ticket.number), laid.num_bytes)
            case _:
                raise ValueError("ticket is of another connector")
        if memory.nbytes != laid.num_bytes:
            raise ValueError(f"`{memory.nbytes}` bytes came for a payload of `{laid.num_bytes}`")
        loan = Loan(pending=[ticket.number], on_release=self._on_release)
        buffers = _wire.buffers_in(header.buffers, laid, memory)
        return Payload(meta=header.meta, buffers=buffers, release=loan.release)

    def own(self, body: bytes) -> Payload | None:
        """Return a small payload, which rides in its ticket."""
        return _wire.own(*_wire.decode(body))

    def close(self) -> None:
        """Remove what a sender that was killed has left; borrowed payloads are copies."""
        if self._closed:
            return
        self._closed = True
        for space in self._spaces:
            self._client.remove_all(_key(space))
        let_go(self._options, self)


def _key(space: str, number: int | str = "") -> str:
    return f"stagemesh/{space}/{number}"
