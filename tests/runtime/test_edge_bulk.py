"""Bulk that a connector hands over travels behind the ticket, over a stream, to the other end."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from stagemesh.runtime.edge import Connector, EdgeIn
from stagemesh.runtime.edge_out import EdgeOut
from stagemesh.runtime.messages import NOTHING, Ack, Attached, Chunk, Key, Message
from stagemesh.runtime.stream import Stream
from stagemesh.spec.connector import ConnectorSpec, Reach, Ticket
from stagemesh.spec.payload import Buffer, Payload
from tests.waiting import WAIT_S

KEY = Key(rid="r", epoch=0)
LIMIT = 1 << 20
COUNT = 7


@dataclass(slots=True)
class Behind:
    """Either end of a connector that shares no memory: all bytes travel."""

    on_release: Callable[[int], None] | None = None
    closed: bool = False

    def put(self, payload: Payload) -> Ticket:
        """Send the buffers as they are."""
        return Ticket(number=3, body=b"", bulk=tuple(buffer.data for buffer in payload.buffers))

    def released(self, number: int) -> None:
        """There is nothing to free."""
        assert number == 3

    def get(self, ticket: Ticket) -> Payload:
        """Take what came as one buffer."""
        (data,) = ticket.bulk
        assert self.on_release is not None
        release, number = self.on_release, ticket.number
        row = Buffer(name="row", dtype="uint8", shape=(len(data),), data=data.toreadonly())
        return Payload(buffers=(row,), release=lambda: release(number))

    def own(self, body: bytes) -> Payload | None:
        """Nothing lies in a body."""
        del body
        return None

    def close(self) -> None:
        """There is nothing to close."""
        self.closed = True


def make(_options: object, on_release: Callable[[int], None] | None = None) -> Behind:
    """Make either end."""
    return Behind(on_release)


SPEC = ConnectorSpec(
    name="behind",
    config_names=(),
    summary="sends all bytes behind the message",
    reach=Reach.NETWORK,
    sender=f"{__name__}:make",
    receiver=f"{__name__}:make",
    bulk_limit=lambda _options: LIMIT,
)


def test_bulk_goes_from_ticket_to_ticket() -> None:
    """What the sender gives as several pieces the receiver has as one, and it is acknowledged."""

    async def run() -> None:
        connector = Connector(spec=SPEC, options=None)
        one, other = socket.socketpair()
        taken: list[bytes] = []
        done = asyncio.Event()

        def on_source(message: Message, _attached: Attached) -> None:
            assert isinstance(message, Ack)
            out.acknowledged(message.numbers)
            done.set()

        def on_target(message: Message, attached: Attached) -> None:
            assert isinstance(message, Chunk)
            payload = into.take(message, attached)
            taken.append(bytes(payload.buffers[0].data))
            payload.release()

        source = Stream(one, on_source, lambda _reason: None)
        target = Stream(other, on_target, lambda _reason: None, bulk_limit=connector.bulk_limit)
        out = EdgeOut(source, connector.sender(), lambda _key, _error: None)
        into = EdgeIn(target, connector)
        rows = tuple(
            Buffer(name=name, dtype="uint8", shape=(500_000,), data=memoryview(byte * 500_000))
            for name, byte in (("a", b"a"), ("b", b"b"))
        )
        assert out.send(KEY, Payload(buffers=rows), last=True)
        await asyncio.wait_for(done.wait(), WAIT_S)
        assert taken == [b"a" * 500_000 + b"b" * 500_000]
        for end in (source, target, out, into):
            end.close()

    asyncio.run(run())


class Broken(Behind):
    """A receiver that does not keep its contract."""

    def get(self, ticket: Ticket) -> Payload:
        """Stumble."""
        raise KeyError(ticket.number)

    def own(self, body: bytes) -> Payload | None:
        """Stumble."""
        raise TypeError(len(body))


def test_what_a_connector_stumbles_over_is_the_end_of_a_request_alone() -> None:
    """It is told as a malformed ticket is, and the ticket is given back."""

    async def run() -> None:
        spec = replace(SPEC, receiver=f"{__name__}:Broken")
        one, other = socket.socketpair()
        stream = Stream(one, lambda _message, _attached: None, lambda _reason: None)
        into = EdgeIn(stream, Connector(spec=spec, options=None))
        chunk = Chunk(key=KEY, seq=0, number=5, body=b"ab", last=True)
        with pytest.raises(ValueError, match="the connector failed with `KeyError: 5`"):
            into.take(chunk, NOTHING)
        with pytest.raises(ValueError, match="the connector failed with `TypeError: 2`"):
            into.own(chunk, NOTHING)
        into.discard(chunk, NOTHING)
        stream.close()
        other.close()

    asyncio.run(run())


def test_what_is_released_together_is_acknowledged_together() -> None:
    """Releases on another thread take one turn of the loop, and one message."""

    async def run() -> None:
        one, other = socket.socketpair()
        acks: list[Ack] = []
        payloads: list[Payload] = []
        done = asyncio.Event()

        def on_source(message: Message, _attached: Attached) -> None:
            assert isinstance(message, Ack)
            acks.append(message)
            done.set()

        def on_target(message: Message, attached: Attached) -> None:
            assert isinstance(message, Chunk)
            payloads.append(into.take(message, attached))
            if len(payloads) == COUNT:
                releasing = threading.Thread(target=release)
                releasing.start()
                releasing.join()

        def release() -> None:
            for payload in payloads:
                payload.release()

        connector = Connector.to_caller(one)
        source = Stream(one, on_source, lambda _reason: None)
        target = Stream(other, on_target, lambda _reason: None)
        out = EdgeOut(source, connector.sender(), lambda _key, _error: None)
        into = EdgeIn(target, connector)
        for number in range(COUNT):
            out.send(KEY, Payload(meta={"number": number}), last=False)
        await asyncio.wait_for(done.wait(), WAIT_S)
        assert acks == [Ack(numbers=tuple(range(COUNT)))]
        for end in (out, into, source, target):
            end.close()

    asyncio.run(run())
