"""What every connector must do. A test file subclasses `ConnectorConformance` and names its own.

    class TestMine(ConnectorConformance):
        spec = CONNECTOR
        options = MyOptions(arena_bytes=65536)

`options` should hold so little memory that payloads of `room_bytes` soon fill it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagemesh.spec.connector import ConnectorSpec, Ticket
from stagemesh.spec.payload import ALIGNMENT, DTYPE_BYTES, Buffer, MetaValue, Payload
from stagemesh.testing.connector_crashes import ConnectorCrashes
from stagemesh.testing.connector_edge import LIMIT, Edge, open_fds, payload_of, payloads
from stagemesh.testing.connector_streams import ConnectorStreams

__all__ = ["ConnectorConformance", "Edge", "open_fds", "payload_of", "payloads"]

_SHARED: Final = settings(
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow], deadline=None
)
"""One test serves several connectors, each through a subclass; some meet a service."""


class ConnectorConformance(ConnectorCrashes, ConnectorStreams):
    """The suite."""

    spec: ConnectorSpec
    """The connector under test."""
    options: object
    """Its options: little memory."""
    room_bytes: int = 32 * 1024
    """Size of payloads that soon fill the edge."""
    giant_bytes: int = 8 * 1024 * 1024
    """Size of a payload that is larger than all memory of the edge."""
    limit: tuple[str, int] | None = None
    """The option that bounds one payload, and its value in `options`, when there is one."""

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

    @_SHARED
    @given(payload=payloads())
    def test_what_lies_in_a_ticket_becomes_the_consumers_own(self, payload: Payload) -> None:
        """It is what was put, stays readable without the edge, and owes no release."""
        with self.edge() as edge:
            ticket = edge.send(payload)
            is_alone = not (ticket.fds or ticket.bulk)
            own = edge.receiver.own(ticket.body) if is_alone else None
            if own is None:
                edge.receiver.get(ticket).release()
            else:
                own.release()
                assert not edge.acks
                edge.sender.released(ticket.number)
        assert own is None or own == payload
        assert own is None or all(buffer.data.readonly for buffer in own.buffers)

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

    @pytest.mark.parametrize("sizes", [(7, 0), (0, 7), (7, 0, 9), (0,), (1, 2, 3)], ids=str)
    def test_buffers_of_odd_sizes_lie_beside_one_another(self, sizes: tuple[int, ...]) -> None:
        """None of them reaches into the next, and empty ones may stand anywhere."""

        def payload(fill: int) -> Payload:
            buffers = []
            for place, size in enumerate(sizes):
                num_bytes = size and self.room_bytes // 4 + size
                (one,) = payload_of(num_bytes, fill + place).buffers
                buffers.append(replace(one, name=str(place)))
            return Payload(buffers=tuple(buffers))

        with self.edge() as edge:
            first = edge.carry(payload(10))
            assert first == payload(10)
            first.release()
            assert edge.carry(payload(20)) == payload(20)

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
        if self.spec.by_reference:
            pytest.skip("it copies nothing")
        source = bytearray(b"\x01" * self.room_bytes)
        with self.edge() as edge:
            buffer = Buffer(
                name="data", dtype="uint8", shape=(len(source),), data=memoryview(source)
            )
            ticket = edge.send(Payload(buffers=(buffer,)))
            source[:] = b"\x02" * len(source)
            assert edge.receiver.get(ticket) == payload_of(self.room_bytes, 1)

    def test_tickets_in_flight_do_not_disturb_one_another(self) -> None:
        """Several payloads lie on the edge at once, each with its own bytes."""
        with self.edge() as edge:
            tickets = [edge.send(payload_of(size, fill)) for size, fill in self._several()]
            got = [edge.receiver.get(ticket) for ticket in tickets]
            assert got == [payload_of(size, fill) for size, fill in self._several()]

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

    def test_what_goes_by_reference_is_not_copied(self) -> None:
        """The receiver reads the sender's own memory, where that begins as it must."""
        if not self.spec.by_reference:
            pytest.skip("it copies")
        numpy = pytest.importorskip("numpy")
        room = numpy.zeros(self.room_bytes + ALIGNMENT, dtype="uint8")
        start = -room.ctypes.data % ALIGNMENT
        source = memoryview(room)[start : start + self.room_bytes]
        buffer = Buffer(name="data", dtype="uint8", shape=(self.room_bytes,), data=source)
        with self.edge() as edge:
            got = edge.carry(Payload(buffers=(buffer,)))
            source[5] = 9
            assert got.buffers[0].data[5] == 9  # noqa: PLR2004  what was written

    @pytest.mark.parametrize(
        "meta",
        [{}, {"": ""}, {"a": 0, "b": False, "c": None, "d": [], "e": 0.0, "f": [None, 0, ""]}],
        ids=["nothing", "no name", "nothing by name"],
    )
    def test_what_counts_as_nothing_is_carried(self, meta: dict[str, MetaValue]) -> None:
        """Empty payloads and falsy values arrive as such, and are released like others."""
        with self.edge() as edge:
            got = edge.carry(Payload(meta=meta))
            assert got == Payload(meta=meta)
            assert list(map(type, got.meta.values())) == list(map(type, meta.values()))
            got.release()
            assert len(edge.acks) == 1

    def test_small_payloads_are_bounded_too(self) -> None:
        """However small they are, without a release they come to an end, and go on after one."""
        with self.edge() as edge:
            borrowed = edge.fill(payload_of(8000))
            assert edge.put(payload_of(8000)) is None
            borrowed[0].release()
            assert edge.carry(payload_of(8000, 3)) == payload_of(8000, 3)

    def test_a_payload_over_the_limit_is_refused_by_name(self) -> None:
        """What can never be carried is a `ValueError` that names the option; the edge goes on."""
        if self.limit is None:
            pytest.skip("nothing bounds one payload")
        option, most = self.limit
        with self.edge() as edge:
            edge.carry(payload_of(most)).release()
            with pytest.raises(ValueError, match=f"`{option}` is `{most}`"):
                edge.put(payload_of(most + 1))
            edge.carry(payload_of(most, 2)).release()

    def test_a_ticket_that_was_never_got_gives_its_room_back(self) -> None:
        """A request that is aborted on its way leaves the edge as it was."""
        with self.edge() as edge:
            room = len(edge.fill(payload_of(self.room_bytes)))
            for number in range(LIMIT):
                edge.sender.released(number)
            tickets = [edge.send(payload_of(self.room_bytes, 2)) for _ in range(room)]
            assert edge.put(payload_of(self.room_bytes)) is None
            for ticket in tickets:
                edge.sender.released(ticket.number)
            assert edge.carry(payload_of(self.room_bytes, 3)) == payload_of(self.room_bytes, 3)

    def test_payloads_are_released_from_any_thread(self) -> None:
        """Threads that release at once are each heard, and each payload once."""
        with self.edge() as edge:
            borrowed = edge.fill(payload_of(self.room_bytes))
            threads = [
                threading.Thread(target=payload.release) for payload in borrowed for _ in range(2)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(set(edge.acks)) == len(edge.acks) == len(borrowed)
            edge.deliver()
            assert len(edge.fill(payload_of(self.room_bytes))) == len(borrowed)

    def test_a_ticket_of_a_closed_sender_is_read_or_refused(self) -> None:
        """A sender that goes while its payload is on the way does not harm the receiver."""
        with self.edge() as edge:
            tickets = [edge.send(payload_of(size)) for size in (10, self.room_bytes)]
            edge.sender.close()
            for ticket in tickets:
                self.refused_or_read(edge, ticket)

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
    @given(changes=st.lists(st.tuples(st.integers(0, LIMIT), st.integers(0, 255)), min_size=1))
    def test_a_damaged_ticket_never_leads_outside(self, changes: list[tuple[int, int]]) -> None:
        """A ticket with changed bytes is a `ValueError`, or a payload that can be read."""
        with self.edge() as edge:
            edge.carry(payload_of(self.room_bytes))
            ticket = edge.send(payload_of(self.room_bytes, 2, {"note": "x"}))
            body = bytearray(ticket.body)
            for place, value in changes:
                body[place % len(body)] = value
            self.refused_or_read(edge, replace(ticket, number=1, body=bytes(body)))

    def test_a_foreign_descriptor_is_refused(self) -> None:
        """A ticket that brings another descriptor than its own is a `ValueError`."""
        with self.edge() as edge:
            ticket = edge.send(payload_of(self.giant_bytes))
            for fd in ticket.fds:
                os.close(fd)
            other = os.memfd_create("short")
            with pytest.raises(ValueError, match=r"."):
                edge.receiver.get(replace(ticket, fds=(other,)))
            assert not [fd for fd in open_fds() if "memfd:short" in fd], "it was closed"

    def test_bytes_that_do_not_belong_are_refused(self) -> None:
        """A ticket with more, fewer or no bytes behind it than it describes is a `ValueError`.

        One that needs none may also be read without them.
        """
        other = memoryview(bytes(self.room_bytes + 1))
        with self.edge() as edge:
            ticket = edge.send(payload_of(self.room_bytes))
            for bulk in ((other,), (other[:-2],), (*ticket.bulk, other), ()):
                changed = replace(ticket, bulk=bulk, fds=tuple(map(os.dup, ticket.fds)))
                if ticket.bulk:
                    with pytest.raises(ValueError, match=r"."):
                        edge.receiver.get(changed)
                else:
                    self.refused_or_read(edge, changed)

    def test_nothing_is_left_behind(self) -> None:
        """After the close no descriptor, no mapping and no name of it is there."""
        before, left = self.held(), self.leftovers()
        edge = Edge(self.spec, self.options)
        for size in (10, self.room_bytes, self.giant_bytes):
            edge.carry(payload_of(size)).release()
        edge.receiver.get(edge.send(payload_of(self.room_bytes)))  # got, never released
        for fd in edge.send(payload_of(self.room_bytes)).fds:  # sent, never got
            os.close(fd)
        edge.close()
        del edge
        assert self.held() == before
        assert self.leftovers() == left

    def _several(self) -> list[tuple[int, int]]:
        sizes = (1000, self.room_bytes, 0, 1000, self.room_bytes)
        return [(size, fill) for fill, size in enumerate(sizes)]

    @staticmethod
    def refused_or_read(edge: Edge, ticket: Ticket) -> None:
        """Get a ticket and read what it leads to; a `ValueError` is as good."""
        found = []
        with contextlib.suppress(ValueError):
            found.append(edge.receiver.own(ticket.body))
        with contextlib.suppress(ValueError):
            found.append(edge.receiver.get(ticket))
        for payload in [one for one in found if one is not None]:
            for buffer in payload.buffers:
                assert buffer.data.nbytes == buffer.num_bytes
                sum(buffer.data[:: max(buffer.data.nbytes // 64, 1)])
            payload.release()
