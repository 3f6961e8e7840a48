"""What every connector must do. A test file subclasses `ConnectorConformance` and names its own.

    class TestMine(ConnectorConformance):
        spec = CONNECTOR
        options = MyOptions(arena_bytes=65536)

`options` should hold so little memory that payloads of `room_bytes` soon fill it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Final, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagemesh.spec.connector import (
    ConnectorSpec,
    Receiver,
    ReceiverFactory,
    Sender,
    SenderFactory,
    Ticket,
)
from stagemesh.spec.payload import ALIGNMENT, DTYPE_BYTES, Buffer, MetaValue, Payload
from stagemesh.spec.reference import resolve

_LIMIT: Final = 10_000
"""Payloads that no edge of little memory has room for."""
_SHARED: Final = settings(suppress_health_check=[HealthCheck.differing_executors])
"""One test serves several connectors, each through a subclass."""
_SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20)
_SHAPES = st.lists(st.integers(0, 6), max_size=4).map(tuple)


class Edge:
    """Both ends of an edge in one process, with the stream between them left out."""

    def __init__(self, spec: ConnectorSpec, options: object) -> None:
        """Make both ends; releases go straight back to the sender."""
        self.sender: Sender = cast("SenderFactory", resolve(spec.sender))(options)
        self.acks: list[int] = []
        receiver = cast("ReceiverFactory", resolve(spec.receiver))
        self.receiver: Receiver = receiver(options, self._acknowledge)

    def carry(self, payload: Payload) -> Payload:
        """Send a payload that has room and receive it."""
        ticket = self.sender.put(payload)
        assert ticket is not None, "there is room"
        return self.receiver.get(ticket)

    def fill(self, payload: Payload) -> list[Payload]:
        """Send a payload until there is no room; return the borrowed copies."""
        borrowed: list[Payload] = []
        while (ticket := self.sender.put(payload)) is not None:
            borrowed.append(self.receiver.get(ticket))
            assert len(borrowed) < _LIMIT, "room is bounded"
        return borrowed

    def close(self) -> None:
        """Close both ends."""
        self.receiver.close()
        self.sender.close()

    def _acknowledge(self, number: int) -> None:
        self.acks.append(number)
        self.sender.released(number)


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


class ConnectorConformance:
    """The suite."""

    spec: ConnectorSpec
    """The connector under test."""
    options: object
    """Its options: little memory."""
    room_bytes: int = 32 * 1024
    """Size of payloads that soon fill the edge."""
    giant_bytes: int = 8 * 1024 * 1024
    """Size of a payload that is larger than all memory of the edge."""

    @contextmanager
    def edge(self) -> Iterator[Edge]:
        """An edge that is closed at the end."""
        edge = Edge(self.spec, self.options)
        try:
            yield edge
        finally:
            edge.close()

    @_SHARED
    @given(payload=payloads())
    def test_what_is_put_is_got(self, payload: Payload) -> None:
        """Metadata, names, dtypes, shapes and bytes arrive unchanged."""
        with self.edge() as edge:
            got = edge.carry(payload)
            assert got == payload
            assert all(buffer.data.readonly for buffer in got.buffers)
            got.release()

    @pytest.mark.parametrize("dtype", sorted(DTYPE_BYTES))
    @pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5, 7)])
    def test_every_dtype_has_scalars_and_empty_arrays(
        self, dtype: str, shape: tuple[int, ...]
    ) -> None:
        """Scalars and arrays without elements are payloads like others."""
        size = prod(shape) * DTYPE_BYTES[dtype]
        data = memoryview(bytes(range(200)) * 3)[:size]
        payload = Payload(buffers=(Buffer(name="x", dtype=dtype, shape=shape, data=data),))
        with self.edge() as edge:
            assert edge.carry(payload) == payload

    @pytest.mark.parametrize("num_bytes", [1, 1000, 100_000, 3_000_000])
    def test_buffers_are_aligned(self, num_bytes: int) -> None:
        """Every buffer begins on a multiple of the alignment, at every size."""
        numpy = pytest.importorskip("numpy")
        one = payload_of(num_bytes).buffers[0]
        two = Buffer(name="two", dtype="uint8", shape=(num_bytes,), data=one.data)
        with self.edge() as edge:
            for buffer in edge.carry(Payload(buffers=(one, two))).buffers:
                address = numpy.frombuffer(buffer.data, dtype="uint8").ctypes.data
                assert address % ALIGNMENT == 0

    def test_the_sender_may_change_its_memory_after_put(self) -> None:
        """`put` has copied: what happens to the source later is not seen."""
        source = bytearray(b"\x01" * self.room_bytes)
        with self.edge() as edge:
            buffer = Buffer(
                name="data", dtype="uint8", shape=(len(source),), data=memoryview(source)
            )
            ticket = edge.sender.put(Payload(buffers=(buffer,)))
            assert ticket is not None
            source[:] = b"\x02" * len(source)
            assert edge.receiver.get(ticket) == payload_of(self.room_bytes, 1)

    def test_tickets_in_flight_do_not_disturb_one_another(self) -> None:
        """Several payloads lie on the edge at once, each with its own bytes."""
        with self.edge() as edge:
            tickets = [edge.sender.put(payload_of(1000, fill)) for fill in range(5)]
            got = [edge.receiver.get(ticket) for ticket in tickets if ticket is not None]
            assert got == [payload_of(1000, fill) for fill in range(5)]

    @settings(_SHARED, max_examples=20)
    @given(data=st.data())
    def test_room_comes_back_in_any_order(self, data: st.DataObject) -> None:
        """A full edge has as much room as before once everything was released, in any order."""
        with self.edge() as edge:
            borrowed = edge.fill(payload_of(self.room_bytes))
            for payload in data.draw(st.permutations(borrowed)):
                payload.release()
            assert len(edge.fill(payload_of(self.room_bytes))) == len(borrowed)

    def test_a_full_edge_says_so_and_has_room_after_a_release(self) -> None:
        """`put` returns `None` without room, and a ticket again after one release."""
        with self.edge() as edge:
            borrowed = edge.fill(payload_of(self.room_bytes))
            assert borrowed, "an empty edge has room"
            assert edge.sender.put(payload_of(self.room_bytes)) is None
            borrowed[len(borrowed) // 2].release()
            assert edge.carry(payload_of(self.room_bytes, 9)) == payload_of(self.room_bytes, 9)

    def test_a_payload_larger_than_the_edge_is_carried(self) -> None:
        """A giant finds its way although it never fits the edge's own memory."""
        giant = payload_of(self.giant_bytes, 7)
        with self.edge() as edge:
            got = edge.carry(giant)
            assert got == giant
            got.release()

    def test_a_payload_is_released_once(self) -> None:
        """However often it is released, the sender hears of it once."""
        with self.edge() as edge:
            got = edge.carry(payload_of(self.room_bytes))
            got.release()
            got.release()
            assert len(edge.acks) == 1

    def test_an_unknown_release_is_ignored(self) -> None:
        """Numbers that were never given out change nothing."""
        with self.edge() as edge:
            edge.sender.released(123_456)
            assert edge.carry(payload_of(10)) == payload_of(10)

    def test_a_borrowed_payload_outlives_the_close(self) -> None:
        """What is borrowed stays readable when both ends have closed."""
        with self.edge() as edge:
            small, large = edge.carry(payload_of(10)), edge.carry(payload_of(self.room_bytes))
            edge.close()
            assert (small, large) == (payload_of(10), payload_of(self.room_bytes))
            large.release()

    def test_closing_twice_does_nothing(self) -> None:
        """Both ends may be closed again, used or not."""
        with self.edge() as edge:
            edge.carry(payload_of(self.room_bytes)).release()
            edge.close()
            edge.close()

    @pytest.mark.parametrize(
        "buffer",
        [
            Buffer(name="x", dtype="uint8", shape=(4,), data=memoryview(b"abc")),
            Buffer(name="x", dtype="complex64", shape=(1,), data=memoryview(b"abcdefgh")),
            Buffer(name="x", dtype="uint8", shape=(-1,), data=memoryview(b"")),
            Buffer(name="x", dtype="uint8", shape=(2,), data=memoryview(b"abcd")[::2]),
        ],
        ids=["size", "dtype", "negative", "gaps"],
    )
    def test_an_impossible_payload_is_refused(self, buffer: Buffer) -> None:
        """A payload that contradicts itself is a `ValueError`, and the edge goes on."""
        with self.edge() as edge:
            with pytest.raises((ValueError, KeyError)):
                edge.sender.put(Payload(buffers=(buffer,)))
            assert edge.carry(payload_of(10)) == payload_of(10)

    @_SHARED
    @given(noise=st.binary(max_size=200))
    def test_noise_is_refused(self, noise: bytes) -> None:
        """A ticket of random bytes is a `ValueError` or a payload, never anything else."""
        with self.edge() as edge:
            self.refused_or_read(edge, Ticket(number=0, body=noise))

    @_SHARED
    @given(changes=st.lists(st.tuples(st.integers(0, _LIMIT), st.integers(0, 255)), min_size=1))
    def test_a_damaged_ticket_never_leads_outside(self, changes: list[tuple[int, int]]) -> None:
        """A ticket with changed bytes is a `ValueError`, or a payload that can be read."""
        with self.edge() as edge:
            edge.carry(payload_of(self.room_bytes))
            ticket = edge.sender.put(payload_of(self.room_bytes, 2, {"note": "x"}))
            assert ticket is not None
            body = bytearray(ticket.body)
            for place, value in changes:
                body[place % len(body)] = value
            self.refused_or_read(edge, Ticket(number=1, body=bytes(body), fds=ticket.fds))

    def test_a_foreign_descriptor_is_refused(self) -> None:
        """A ticket that brings another descriptor than its own is a `ValueError`."""
        with self.edge() as edge:
            ticket = edge.sender.put(payload_of(self.giant_bytes))
            assert ticket is not None
            for fd in ticket.fds:
                os.close(fd)
            other = os.memfd_create("short")
            with pytest.raises(ValueError, match=r"."):
                edge.receiver.get(Ticket(number=0, body=ticket.body, fds=(other,)))

    def test_nothing_is_left_behind(self) -> None:
        """After the close no descriptor is open and nothing stands in `/dev/shm`."""
        before, shared = open_fds(), set(Path("/dev/shm").iterdir())  # noqa: S108  it is looked at
        edge = Edge(self.spec, self.options)
        for size in (10, self.room_bytes, self.giant_bytes):
            edge.carry(payload_of(size)).release()
        edge.sender.put(payload_of(10))
        edge.close()
        del edge
        assert open_fds() == before
        assert set(Path("/dev/shm").iterdir()) == shared  # noqa: S108  it is looked at

    @staticmethod
    def refused_or_read(edge: Edge, ticket: Ticket) -> None:
        """Get a ticket and read what it leads to; a `ValueError` is as good."""
        try:
            payload = edge.receiver.get(ticket)
        except ValueError:
            return
        for buffer in payload.buffers:
            assert buffer.data.nbytes == buffer.num_bytes
            sum(buffer.data[:: max(buffer.data.nbytes // 64, 1)])
        payload.release()
