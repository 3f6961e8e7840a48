"""The connector without shared memory: the common suite, and its own promises."""

from __future__ import annotations

import asyncio

import pytest

from stagemesh.connectors._memory import Spare
from stagemesh.connectors._tcp import TcpReceiver, TcpSender
from stagemesh.connectors.tcp import CONNECTOR, TcpOptions
from stagemesh.errors import ClosedError
from stagemesh.runtime.edge import Connector
from stagemesh.runtime.messages import Chunk
from stagemesh.spec.payload import Buffer, Payload
from stagemesh.testing.connector_conformance import ConnectorConformance
from stagemesh.testing.connector_edge import Edge, payload_of
from stagemesh.testing.connector_streams import ONE, TWO, Run

OPTIONS = TcpOptions(window_bytes=256 * 1024, max_payload_bytes=16 * 1024 * 1024)


class TestTcp(ConnectorConformance):
    """The common suite."""

    spec = CONNECTOR
    options = OPTIONS
    limit = ("max_payload_bytes", 16 * 1024 * 1024)


def test_a_small_payload_lies_in_the_ticket() -> None:
    """Up to 16 KiB need no bytes behind the message, more do."""
    sender = TcpSender(OPTIONS)
    small, large = sender.put(payload_of(16 * 1024)), sender.put(payload_of(16 * 1024 + 1))
    assert small is not None
    assert large is not None
    assert (small.bulk, [part.nbytes for part in large.bulk]) == ((), [16 * 1024 + 1])
    assert len(large.body) < 100


def test_what_is_larger_than_the_window_goes_alone() -> None:
    """It waits until nothing else is on the way, and nothing else goes until it is released."""
    edge = Edge(CONNECTOR, OPTIONS)
    first = edge.carry(payload_of(10))
    assert edge.put(payload_of(1_000_000)) is None
    first.release()
    giant = edge.carry(payload_of(1_000_000))
    assert edge.put(payload_of(10)) is None
    giant.release()
    assert edge.carry(payload_of(10)) == payload_of(10)


def test_memory_that_was_released_is_used_again() -> None:
    """Not while it is lent; what lay there before is not sent with a later payload."""
    sender = TcpSender(OPTIONS)
    first = sender.put(payload_of(40_000, 1))
    second = sender.put(payload_of(40_000, 2))
    assert first is not None
    assert second is not None
    assert bytes(first.bulk[0]) == b"\x01" * 40_000
    sender.released(first.number)
    one, two = (Buffer(name=n, dtype="uint8", shape=(3,), data=memoryview(b"abc")) for n in "ab")
    large = payload_of(39_000, 3).buffers[0]
    third = sender.put(Payload(buffers=(one, two, large)))
    assert third is not None
    assert third.bulk[0].obj is first.bulk[0].obj
    assert bytes(third.bulk[0][:128]) == b"abc" + bytes(61) + b"abc" + bytes(61)
    assert bytes(second.bulk[0]) == b"\x02" * 40_000


@pytest.mark.parametrize("num_bytes", [1, 7, 4096, 4097, 70_000, 1 << 20, (1 << 20) + 1])
def test_a_piece_is_as_large_as_asked_for_and_not_much_larger(num_bytes: int) -> None:
    """At most an eighth, or what is left of a page."""
    piece = Spare(0).take(num_bytes)
    assert num_bytes <= piece.nbytes < max(num_bytes * 9 / 8, num_bytes + 4096) + 1


def test_no_more_memory_is_kept_than_the_window_holds() -> None:
    """The oldest goes; the last stays whatever its size."""
    spare = Spare(100_000)
    pieces = [spare.take(size) for size in (40_000, 60_000, 300_000)]
    for piece in pieces:
        spare.give(piece[:10])
    assert spare.take(300_000).obj is pieces[2].obj
    assert spare.take(60_000).obj is not pieces[1].obj
    with pytest.raises((OSError, ValueError, OverflowError)):
        spare.take(1 << 62)


def test_a_stream_takes_bulk_into_memory_that_was_given_back() -> None:
    """While it is borrowed it is left alone; a number that is borrowed cannot come again."""

    async def check() -> None:
        run = Run(Connector(spec=CONNECTOR, options=OPTIONS))
        run.holds = True
        run.out.send(ONE, payload_of(40_000, 1), last=False)
        run.out.send(ONE, payload_of(40_000, 2), last=False)
        await run.until(lambda: len(run.got) == 2)
        first, second = (got.payload for got in run.got)
        memory = first.buffers[0].data.obj
        first.release()
        run.out.send(ONE, payload_of(40_000, 3), last=False)
        await run.until(lambda: len(run.got) == 3)
        assert run.got[2].payload.buffers[0].data.obj is memory
        assert second == payload_of(40_000, 2)
        ticket = TcpSender(OPTIONS).put(payload_of(40_000, 4))
        assert ticket is not None
        forged = Chunk(key=TWO, seq=0, number=1, body=ticket.body, last=True)
        run.source.send(forged, (), ticket.bulk)
        await run.until(lambda: bool(run.refused))
        assert run.refused == ["ticket `1` is still borrowed"]
        assert second == payload_of(40_000, 2)
        run.close()

    asyncio.run(check())


def test_a_ticket_beyond_the_limit_of_the_receiver_is_refused() -> None:
    """Both ends have one limit, so that a ticket for more is a fault of the other end."""
    ticket = Edge(CONNECTOR, TcpOptions()).send(payload_of(200_000))
    receiver = TcpReceiver(TcpOptions(max_payload_bytes=100_000), lambda _number: None)
    with pytest.raises(ValueError, match="too much"):
        receiver.get(ticket)


def test_a_closed_sender_says_so() -> None:
    """Putting after the close raises `ClosedError`."""
    sender = TcpSender(OPTIONS)
    sender.close()
    with pytest.raises(ClosedError):
        sender.put(payload_of(1))
