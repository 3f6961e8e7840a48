"""Streams between processes."""

from __future__ import annotations

import array
import asyncio
import contextlib
import ctypes
import mmap
import os
import socket
from collections.abc import Callable, Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.runtime import messages
from stagemesh.runtime.frames import FrameReader
from stagemesh.runtime.messages import (
    FRAME_HEAD,
    Ack,
    Attached,
    Chunk,
    Key,
    Message,
    PeerUp,
    ProtocolError,
    Stop,
)
from stagemesh.runtime.stream import Stream
from stagemesh.spec.payload import ALIGNMENT
from stagemesh.testing.connector_conformance import open_fds
from tests.waiting import WAIT_S

KEY = Key(rid="r", epoch=0)
CHUNK = Chunk(key=KEY, seq=0, number=0, body=b"", last=False)
CHUNK_BODY = messages.encode(CHUNK)[FRAME_HEAD.size :]
STOP_BODY = messages.encode(Stop())[FRAME_HEAD.size :]


class End:
    """A stream that writes down what it hears."""

    def __init__(
        self,
        sock: socket.socket,
        on_message: Callable[[Message], None] | None,
        *,
        bulk_limit: int = 0,
    ) -> None:
        """Listen on `sock`."""
        self.heard: list[Message] = []
        self.fds: list[int] = []
        self.bulks: list[memoryview] = []
        self.eofs: list[str | None] = []
        self.eof = asyncio.Event()
        self.news = asyncio.Event()
        self._on_message = on_message
        self.stream = Stream(sock, self._message, self._ended, bulk_limit=bulk_limit)

    async def until(self, count: int) -> None:
        """Wait for that many messages."""
        while len(self.heard) < count:
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), WAIT_S)

    async def ended(self) -> None:
        """Wait for the end of the stream."""
        await asyncio.wait_for(self.eof.wait(), WAIT_S)

    def _message(self, message: Message, attached: Attached) -> None:
        self.heard.append(message)
        self.fds += attached.fds
        self.bulks += attached.bulk
        self.news.set()
        if self._on_message is not None:
            self._on_message(message)

    def _ended(self, reason: str | None) -> None:
        self.eofs.append(reason)
        self.eof.set()


def on_pair(
    work: Callable[[socket.socket, End], Coroutine[Any, Any, None]],
    on_message: Callable[[Message], None] | None = None,
    *,
    bulk_limit: int = 0,
) -> None:
    """Run `work` with a bare socket and a stream at its other end, and see that nothing leaks."""

    async def run() -> None:
        before = open_fds()
        bare, other = socket.socketpair()
        bare.setblocking(False)  # noqa: FBT003  signature of the standard library
        end = End(other, on_message, bulk_limit=bulk_limit)
        try:
            await work(bare, end)
        finally:
            bare.close()
            end.stream.close()
            for fd in end.fds:
                os.close(fd)
        assert open_fds() == before

    asyncio.run(run())


@given(data=st.data(), sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=8))
def test_messages_arrive_in_order_however_they_are_cut(
    data: st.DataObject, sizes: list[int]
) -> None:
    """Frames are found again whatever pieces the bytes come in."""
    sent = [
        Chunk(key=KEY, seq=n, number=n, body=b"x" * size, last=False)
        for n, size in enumerate(sizes)
    ]
    stream = b"".join(messages.encode(message) for message in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    edges = [0, *cuts, len(stream)]

    async def work(bare: socket.socket, end: End) -> None:
        for begin, stop in pairwise(edges):
            await asyncio.get_running_loop().sock_sendall(bare, stream[begin:stop])
        await end.until(len(sent))
        assert end.heard == sent

    on_pair(work)


def test_more_than_a_socket_holds_is_sent_piece_by_piece() -> None:
    """A stream keeps what does not fit and sends it as the other end reads, in order."""

    async def run() -> None:
        one, other = socket.socketpair()
        sender, receiver = End(one, None), End(other, None)
        sent = [Chunk(key=KEY, seq=n, number=n, body=b"y" * 500_000, last=False) for n in range(8)]
        for message in sent:
            sender.stream.send(message)
        await receiver.until(len(sent))
        assert receiver.heard == sent
        sender.stream.close()
        receiver.stream.close()

    asyncio.run(run())


def test_what_was_sent_is_written_once_it_has_left_the_process() -> None:
    """At once where there is room, later where there is none, and also when nobody will read it."""

    async def work(bare: socket.socket, end: End) -> None:
        told: list[str] = []
        long = Chunk(key=KEY, seq=0, number=0, body=b"y" * 1_000_000, last=False)
        end.stream.when_written(lambda: told.append("nothing"))
        end.stream.send(long)
        end.stream.when_written(lambda: told.append("long"))
        assert told == ["nothing"]
        while told == ["nothing"]:
            with contextlib.suppress(BlockingIOError):
                bare.recv(1 << 20)
            await asyncio.sleep(0)
        end.stream.send(long)
        end.stream.when_written(lambda: told.append("dropped"))
        end.stream.close()
        assert told == ["nothing", "long", "dropped"]

    on_pair(work)


def test_descriptors_come_with_their_message() -> None:
    """Each message brings its own descriptors, and the sender's copies are closed."""

    async def run() -> None:
        before = open_fds()
        one, other = socket.socketpair()
        sender, receiver = End(one, None), End(other, None)
        files = [os.memfd_create(f"file-{n}") for n in range(3)]
        for n, fd in enumerate(files):
            os.write(fd, b"%d" % n)
            sender.stream.send(Ack(numbers=(n,)))
            sender.stream.send(PeerUp(stage=n, replica=0), (fd,))
        await receiver.until(6)
        assert [os.pread(fd, 9, 0) for fd in receiver.fds] == [b"0", b"1", b"2"]
        for fd in receiver.fds:
            os.close(fd)
        sender.stream.close()
        receiver.stream.close()
        assert open_fds() == before

    asyncio.run(run())


def test_the_end_of_the_other_side_is_told_once() -> None:
    """After the last message comes the end, and later sends are dropped."""

    async def work(bare: socket.socket, end: End) -> None:
        bare.sendall(messages.encode(Stop()))
        bare.close()
        await end.ended()
        end.stream.send(Ack(numbers=(1,)))
        assert end.heard == [Stop()]
        assert end.eofs == [None]

    on_pair(work)


def test_closing_is_not_an_end() -> None:
    """Who closes knows it: `on_eof` is for the other side's going."""

    async def work(bare: socket.socket, end: End) -> None:
        end.stream.close()
        end.stream.close()
        assert bare.recv(1) == b""
        assert end.eofs == []

    on_pair(work)


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (FRAME_HEAD.pack(0xFFFFFFFF, 0, 0), "too long"),
        (FRAME_HEAD.pack(3, 0, 0) + b"abc", "malformed message"),
        (FRAME_HEAD.pack(len(CHUNK_BODY), 1, 0) + CHUNK_BODY, "descriptors"),
        (FRAME_HEAD.pack(2, 1, 0) + STOP_BODY, "descriptors"),
        (FRAME_HEAD.pack(0, 200, 0), "too long"),
        (FRAME_HEAD.pack(len(CHUNK_BODY), 0, 1 << 63) + CHUNK_BODY, "too many"),
        (FRAME_HEAD.pack(len(CHUNK_BODY), 0, 101) + CHUNK_BODY, "too many"),
        (FRAME_HEAD.pack(2, 0, 100) + STOP_BODY, "bytes behind it that it does not have"),
    ],
    ids=[
        "too long",
        "no message",
        "missing descriptor",
        "descriptor where none may be",
        "too many descriptors",
        "absurd bulk",
        "more bulk than allowed",
        "bulk where none may be",
    ],
)
def test_a_frame_that_must_not_be_ends_the_stream(frame: bytes, told: str) -> None:
    """Nothing malformed is waited for or guessed at; the reason is told, and can be answered."""

    async def work(bare: socket.socket, end: End) -> None:
        bare.sendall(frame)
        await end.ended()
        assert end.heard == []
        assert told in str(end.eofs[0])
        end.stream.send(Stop())
        assert bare.recv(100) == messages.encode(Stop())

    on_pair(work, bulk_limit=100)


@given(noise=st.binary(min_size=1, max_size=300))
def test_noise_ends_the_stream_or_waits_for_more(noise: bytes) -> None:
    """Random bytes never do anything but end the stream, here at the latest with its close."""

    async def work(bare: socket.socket, end: End) -> None:
        bare.sendall(noise)
        bare.close()
        await end.ended()
        assert len(end.eofs) == 1

    on_pair(work)


def test_a_descriptor_that_nobody_announced_ends_the_stream() -> None:
    """A stray descriptor does not stay open, and nothing more is read from who sent it."""

    async def work(bare: socket.socket, end: End) -> None:
        fd = os.memfd_create("stray")
        socket.send_fds(bare, [messages.encode(Stop())], [fd])
        os.close(fd)
        await end.ended()
        assert end.heard == [Stop()]
        assert end.eofs == ["descriptors came that no message announces"]

    on_pair(work)


def test_a_message_out_of_place_ends_the_stream() -> None:
    """When the handler says that a message does not belong here, the stream ends."""

    def refuse(message: Message) -> None:
        raise ProtocolError(f"not here: {message}")

    async def work(bare: socket.socket, end: End) -> None:
        bare.sendall(messages.encode(Stop()) * 2)
        await end.ended()
        assert end.heard == [Stop()]
        assert end.eofs == ["not here: Stop()"]

    on_pair(work, refuse)


def test_bulk_comes_behind_its_message_in_one_aligned_piece() -> None:
    """Pieces of the sender are one for the receiver, in order with everything around them."""

    async def run() -> None:
        one, other = socket.socketpair()
        sender, receiver = End(one, None), End(other, None, bulk_limit=3_000_000)
        pieces = [os.urandom(size) for size in (1_000_000, 1, 1_999_999)]
        views = [memoryview(piece) for piece in pieces]
        sender.stream.send(Ack(numbers=(1,)))
        sender.stream.send(CHUNK, bulk=[*views[:2], memoryview(b""), views[2]])
        sender.stream.send(CHUNK, bulk=[memoryview(b"small")])
        sender.stream.send(CHUNK, bulk=[memoryview(b"")])
        sender.stream.send(Ack(numbers=(2,)))
        await receiver.until(5)
        assert receiver.heard == [Ack(numbers=(1,)), CHUNK, CHUNK, CHUNK, Ack(numbers=(2,))]
        assert [bytes(bulk) for bulk in receiver.bulks] == [b"".join(pieces), b"small"]
        assert all(address_of(bulk) % ALIGNMENT == 0 for bulk in receiver.bulks)
        sender.stream.close()
        receiver.stream.close()

    asyncio.run(run())


def test_many_pieces_and_words_of_any_width_are_bulk() -> None:
    """More pieces than the system takes at once arrive, and a view of floats is its bytes."""

    async def run() -> None:
        one, other = socket.socketpair()
        sender, receiver = End(one, None), End(other, None, bulk_limit=100_000)
        floats = array.array("d", range(1000))
        sender.stream.send(CHUNK, bulk=[memoryview(b"ab")] * 3000 + [memoryview(floats)])
        await receiver.until(1)
        assert bytes(receiver.bulks[0]) == b"ab" * 3000 + floats.tobytes()
        sender.stream.close()
        receiver.stream.close()

    asyncio.run(run())


@given(data=st.data(), sizes=st.lists(st.integers(0, 200_000), min_size=1, max_size=5))
def test_bulk_is_found_however_it_is_cut(data: st.DataObject, sizes: list[int]) -> None:
    """Bulk and messages between it are told apart whatever pieces the bytes come in."""
    bulks = [bytes([n + 1]) * size for n, size in enumerate(sizes)]
    stream = b"".join(messages.encode(CHUNK, 0, len(bulk)) + bulk for bulk in bulks)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))

    async def work(bare: socket.socket, end: End) -> None:
        for begin, stop in pairwise([0, *cuts, len(stream)]):
            await asyncio.get_running_loop().sock_sendall(bare, stream[begin:stop])
        await end.until(len(bulks))
        assert end.heard == [CHUNK] * len(bulks)
        assert [bytes(bulk) for bulk in end.bulks] == [bulk for bulk in bulks if bulk]

    on_pair(work, bulk_limit=200_000)


def test_no_memory_is_taken_for_bulk_that_is_not_allowed() -> None:
    """A head alone takes nothing, and bulk that is allowed takes memory only as it comes."""
    before = resident_bytes()
    reader = FrameReader(bulk_limit=1 << 33)
    frame = messages.encode(CHUNK, 0, 1 << 33) + b"x" * 1000
    reader.room[: len(frame)] = frame
    assert list(reader.received(len(frame))) == []
    assert len(reader.room) == (1 << 33) - 1000
    assert resident_bytes() - before < 8 << 20
    other = FrameReader(bulk_limit=1 << 62)
    frame = messages.encode(CHUNK, 0, 1 << 62)
    other.room[: len(frame)] = frame
    with pytest.raises(ProtocolError, match="no memory"):
        list(other.received(len(frame)))


def address_of(view: memoryview) -> int:
    """Where a view begins."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def resident_bytes() -> int:
    """What this process has in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE
