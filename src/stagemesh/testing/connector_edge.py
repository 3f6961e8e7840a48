"""An edge in one process, for tests of connectors: both ends, with the stream between left out."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Final, cast

from hypothesis import strategies as st

from stagemesh.connectors._memory import aligned
from stagemesh.spec.connector import (
    ConnectorSpec,
    Receiver,
    ReceiverFactory,
    Sender,
    SenderFactory,
    Ticket,
)
from stagemesh.spec.payload import DTYPE_BYTES, Buffer, MetaValue, Payload
from stagemesh.spec.reference import resolve

LIMIT: Final = 10_000
"""Payloads that no edge of little memory has room for."""
_SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20)
_SHAPES = st.lists(st.integers(0, 6), max_size=4).map(tuple)


class Edge:
    """Both ends of an edge in one process."""

    def __init__(self, spec: ConnectorSpec, options: object) -> None:
        """Make both ends; releases go straight back to the sender."""
        self._bulk_limit = spec.bulk_limit(options)
        self.sender: Sender = cast("SenderFactory", resolve(spec.sender))(options)
        self.acks: list[int] = []
        self._thread = threading.get_ident()
        self._late: list[int] = []
        receiver = cast("ReceiverFactory", resolve(spec.receiver))
        self.receiver: Receiver = receiver(options, self._acknowledge)

    def put(self, payload: Payload) -> Ticket | None:
        """Send a payload; return its ticket as it arrives at the other end."""
        ticket = self.sender.put(payload)
        if ticket is None:
            return None
        received = as_received(ticket)
        assert sum(len(piece) for piece in received.bulk) <= self._bulk_limit
        return received

    def send(self, payload: Payload) -> Ticket:
        """Send a payload that has room."""
        ticket = self.put(payload)
        assert ticket is not None, "there is room"
        return ticket

    def carry(self, payload: Payload) -> Payload:
        """Send a payload that has room and receive it."""
        return self.receiver.get(self.send(payload))

    def fill(self, payload: Payload) -> list[Payload]:
        """Send a payload until there is no room; return the borrowed copies."""
        borrowed: list[Payload] = []
        while (ticket := self.put(payload)) is not None:
            borrowed.append(self.receiver.get(ticket))
            assert len(borrowed) < LIMIT, "room is bounded"
        return borrowed

    def deliver(self) -> None:
        """Tell the sender what other threads have released."""
        while self._late:
            self.sender.released(self._late.pop())

    def close(self) -> None:
        """Close both ends."""
        self.receiver.close()
        self.sender.close()

    def _acknowledge(self, number: int) -> None:
        self.acks.append(number)
        if threading.get_ident() == self._thread:
            self.sender.released(number)
        else:
            self._late.append(number)


def as_received(ticket: Ticket) -> Ticket:
    """Return a ticket as a stream delivers it: what travels behind it is one aligned piece."""
    if not ticket.bulk:
        return ticket
    piece = aligned(sum(part.nbytes for part in ticket.bulk))
    start = 0
    for part in ticket.bulk:
        piece[start : start + part.nbytes] = part
        start += part.nbytes
    return replace(ticket, bulk=(piece,))


def payload_of(num_bytes: int, fill: int = 1, meta: dict[str, MetaValue] | None = None) -> Payload:
    """A payload of one buffer whose bytes are all `fill`."""
    data = memoryview(bytes([fill]) * num_bytes)
    buffer = Buffer(name="data", dtype="uint8", shape=(num_bytes,), data=data)
    return Payload(meta=meta or {}, buffers=(buffer,))


@st.composite
def payloads(draw: st.DrawFn) -> Payload:
    """Payloads of every dtype, shape and kind of metadata."""
    names = draw(st.lists(st.text(min_size=1, max_size=12), unique=True, max_size=4))
    buffers = []
    for name in names:
        dtype = draw(st.sampled_from(sorted(DTYPE_BYTES)))
        shape = draw(_SHAPES)
        size = prod(shape) * DTYPE_BYTES[dtype]
        data = memoryview(draw(st.binary(min_size=size, max_size=size)))
        buffers.append(Buffer(name=name, dtype=dtype, shape=shape, data=data))
    values = _SCALARS | st.lists(_SCALARS, max_size=4)
    meta = draw(st.dictionaries(st.text(max_size=12), values, max_size=4))
    return Payload(meta=cast("dict[str, MetaValue]", meta), buffers=tuple(buffers))


def open_fds() -> set[str]:
    """The descriptors of this process, each with what it leads to."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{entry.name} {entry.readlink()}")
        except FileNotFoundError:  # the one that listed the folder
            continue
    return found


def held() -> tuple[set[str], int, set[str]]:
    """Descriptors, mapped memory files, and names in `/dev/shm`: what an edge may leave behind."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").count("/memfd:stagemesh")
    shared = {entry.name for entry in Path("/dev/shm").iterdir()}  # noqa: S108  it is looked at
    return open_fds(), maps, shared
