"""The part of the suite of connectors where payloads of requests go over a stream."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from stagemesh.runtime.edge import Connector, EdgeIn
from stagemesh.runtime.edge_out import EdgeOut
from stagemesh.runtime.edge_threads import settle
from stagemesh.runtime.messages import Ack, Attached, Chunk, Key, Message
from stagemesh.runtime.stream import Stream
from stagemesh.spec.connector import ConnectorSpec
from stagemesh.spec.frozen import frozen
from stagemesh.spec.payload import Buffer, Payload
from stagemesh.testing.connector_edge import payload_of

_WAIT_S: Final = 60.0
_CLOSE_S: Final = 10.0
_FEW: Final = 4
"""Chunks of a request that has few."""
_MANY: Final = 30
"""Chunks for which an edge of little memory has no room at once."""
ONE, TWO, THREE = (Key(rid=rid, epoch=0) for rid in ("one", "two", "three"))
_BROKEN: Final = Payload(
    buffers=(Buffer(name="x", dtype="uint8", shape=(4,), data=memoryview(b"abc")),)
)


@frozen
class Got:
    """A chunk as it came out."""

    key: Key
    """Its request."""
    seq: int
    """Its number."""
    payload: Payload
    """What it carried."""
    last: bool
    """Whether it was the last of its request."""


class Run:
    """An edge between two streams of one loop."""

    def __init__(self, connector: Connector) -> None:
        """Connect it; needs a running loop."""
        one, other = socket.socketpair()
        self.source = Stream(one, self._on_source, self._on_eof)
        self.target = Stream(other, self._on_target, self._on_eof, bulk_limit=connector.bulk_limit)
        self.out = EdgeOut(self.source, connector.sender(), self._on_sent)
        self.into = EdgeIn(self.target, connector)
        self.got: list[Got] = []
        self.refused: list[str] = []
        self.sent: list[tuple[Key, bool]] = []
        """Chunks that had to wait, and whether they went."""
        self.num_acks = 0
        self.holds = False
        """Whether the consumer keeps what it has borrowed until a test gives it back."""
        self.unwanted: set[Key] = set()
        """Requests that the consumer has forgotten."""
        self._changed = asyncio.Event()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let the loop run until something holds."""
        async with asyncio.timeout(_WAIT_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    def give_back(self) -> None:
        """Release whatever has come."""
        for got in self.got:
            got.payload.release()

    def close(self) -> None:
        """Close everything."""
        for end in (self.source, self.target, self.out, self.into):
            end.close()
        settle(_CLOSE_S)

    def _on_source(self, message: Message, _attached: Attached) -> None:
        assert isinstance(message, Ack)
        self.num_acks += len(message.numbers)
        self.out.acknowledged(message.numbers)
        self._changed.set()

    def _on_target(self, message: Message, attached: Attached) -> None:
        assert isinstance(message, Chunk)
        self.into.when_here(message, attached, lambda: self._take(message, attached))

    def _take(self, chunk: Chunk, attached: Attached) -> None:
        self._changed.set()
        if chunk.key in self.unwanted:
            self.into.discard(chunk, attached)
            return
        try:
            payload = self.into.take(chunk, attached)
        except ValueError as error:
            self.refused.append(str(error))
            return
        if not self.holds:
            borrowed, payload = payload, payload.copied()
            borrowed.release()
        self.got.append(Got(key=chunk.key, seq=chunk.seq, payload=payload, last=chunk.last))

    def _on_sent(self, key: Key, error: ValueError | None) -> None:
        self.sent.append((key, error is None))
        self._changed.set()

    def _on_eof(self, reason: str | None) -> None:
        raise AssertionError(reason or "nobody has closed a stream")


class ConnectorStreams:
    """What holds for the payloads of requests, whatever carries them."""

    spec: ConnectorSpec
    options: object
    room_bytes: int = 32 * 1024

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[Run]:
        run = Run(Connector(spec=self.spec, options=self.options))
        try:
            yield run
        finally:
            run.close()

    def test_every_request_has_its_chunks_in_order(self) -> None:
        """Numbers begin at 0 for each request and have no gap, and nothing comes twice."""

        async def check() -> None:
            async with self._run() as run:
                for fill in range(_FEW):
                    for key, size in ((ONE, 1000), (TWO, self.room_bytes // 4), (THREE, 0)):
                        run.out.send(key, payload_of(size, fill), last=fill == _FEW - 1)
                await run.until(lambda: len(run.got) == 3 * _FEW)
                for key, size in ((ONE, 1000), (TWO, self.room_bytes // 4), (THREE, 0)):
                    mine = [got for got in run.got if got.key == key]
                    assert [got.seq for got in mine] == list(range(_FEW))
                    assert [got.last for got in mine] == [False] * (_FEW - 1) + [True]
                    assert [got.payload for got in mine] == [
                        payload_of(size, n) for n in range(_FEW)
                    ]

        asyncio.run(check())

    def test_the_last_chunk_may_be_empty_and_comes_once(self) -> None:
        """With data or without; the next generation of a request begins at 0 again."""

        async def check() -> None:
            async with self._run() as run:
                again = Key(rid=ONE.rid, epoch=1)
                run.out.send(ONE, payload_of(self.room_bytes), last=False)
                run.out.send(ONE, Payload(), last=True)
                run.out.send(TWO, payload_of(self.room_bytes, 2), last=True)
                run.out.send(again, Payload(meta={"n": 0}), last=True)
                await run.until(lambda: len(run.got) == 4)  # noqa: PLR2004  as many as were sent
                mine = [got for got in run.got if got.key == ONE]
                assert [(got.seq, got.last) for got in mine] == [(0, False), (1, True)]
                assert mine[1].payload == Payload()
                others = {got.key: (got.seq, got.last) for got in run.got if got.key != ONE}
                assert others == {TWO: (0, True), again: (0, True)}

        asyncio.run(check())

    def test_nothing_comes_after_the_last(self) -> None:
        """A second end is refused and given back, until the request is forgotten."""

        async def check() -> None:
            async with self._run() as run:
                run.out.send(ONE, Payload(), last=True)
                with pytest.raises(ValueError, match="after the last"):
                    run.out.send(ONE, Payload(), last=False)
                await run.until(lambda: run.num_acks == 1)
                run.out.drop(ONE)  # too early: the consumer knows the request yet
                run.out.send(ONE, payload_of(self.room_bytes), last=True)
                await run.until(lambda: run.num_acks == 2)  # noqa: PLR2004  one of each
                assert [got.payload for got in run.got] == [Payload()]
                assert run.refused == ["chunk `0` came after the last"]
                run.into.drop(ONE)
                run.out.drop(ONE)
                run.out.send(ONE, payload_of(10), last=True)
                await run.until(lambda: len(run.got) == 2)  # noqa: PLR2004  both
                assert run.got[-1].payload == payload_of(10)

        asyncio.run(check())

    def test_what_finds_no_room_goes_in_order_as_room_comes_back(self) -> None:
        """Every chunk that had to wait is reported once, when it has gone."""

        async def check() -> None:
            async with self._run() as run:
                run.holds = True
                went = [
                    run.out.send(ONE, payload_of(self.room_bytes, n % 250), last=False)
                    for n in range(_MANY)
                ]
                for n in range(_MANY):
                    await run.until(lambda n=n: len(run.got) > n)  # type: ignore[misc]
                    assert run.got[n].payload == payload_of(self.room_bytes, n % 250)
                    run.got[n].payload.release()
                await run.until(lambda: run.num_acks == _MANY)
                assert [got.seq for got in run.got] == list(range(_MANY))
                assert run.sent == [(ONE, True)] * went.count(False)

        asyncio.run(check())

    def test_a_request_that_its_producer_aborts_leaves_room_for_others(self) -> None:
        """What waits of it is never sent; what waited behind it goes."""

        async def check() -> None:
            async with self._run() as run:
                run.holds = True
                num_ones = 0
                while run.out.send(ONE, payload_of(self.room_bytes), last=False):
                    num_ones += 1
                for _ in range(3):
                    run.out.send(ONE, payload_of(self.room_bytes), last=False)
                run.out.send(TWO, payload_of(self.room_bytes, 2), last=True)
                run.out.drop(ONE)
                while not any(got.key == TWO for got in run.got):
                    count = len(run.got)
                    run.give_back()
                    await run.until(lambda count=count: len(run.got) > count)  # type: ignore[misc]
                assert sum(got.key == ONE for got in run.got) == num_ones
                assert run.got[-1].payload == payload_of(self.room_bytes, 2)

        asyncio.run(check())

    def test_a_request_that_its_consumer_forgot_leaves_room_for_others(self) -> None:
        """Its chunks are given back as they come."""

        async def check() -> None:
            async with self._run() as run:
                run.unwanted.add(ONE)
                for _ in range(_MANY):
                    run.out.send(ONE, payload_of(self.room_bytes), last=False)
                run.out.send(TWO, payload_of(self.room_bytes, 2), last=True)
                await run.until(lambda: run.num_acks == _MANY + 1)
                assert run.got[0].payload == payload_of(self.room_bytes, 2)

        asyncio.run(check())

    def test_a_payload_that_cannot_be_carried_fails_alone(self) -> None:
        """Whether it is refused at once or after it waited; what follows is carried."""

        async def check() -> None:
            async with self._run() as run:
                run.holds = True
                while run.out.send(ONE, payload_of(self.room_bytes), last=False):
                    pass
                assert not run.out.send(TWO, _BROKEN, last=True)
                run.out.send(THREE, payload_of(10), last=True)
                while not any(got.key == THREE for got in run.got):
                    count = len(run.got)
                    run.give_back()
                    await run.until(lambda count=count: len(run.got) > count)  # type: ignore[misc]
                assert (TWO, False) in run.sent
                assert all(got.key != TWO for got in run.got)

        asyncio.run(check())

    def test_a_chunk_that_is_no_good_is_given_back(self) -> None:
        """The producer has its room again; chunks of other requests go on."""

        async def check() -> None:
            async with self._run() as run:
                run.source.send(Chunk(key=ONE, seq=0, number=9, body=b"\xc1no", last=True))
                run.out.send(TWO, payload_of(10), last=True)
                await run.until(lambda: run.num_acks == 2)  # noqa: PLR2004  one of each
                assert len(run.refused) == 1

        asyncio.run(check())
