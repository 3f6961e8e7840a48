"""Streams between processes."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.runtime import messages
from stagemesh.runtime.messages import Ack, Chunk, Key, Message, PeerUp, ProtocolError, Stop
from stagemesh.runtime.stream import Stream
from stagemesh.testing.connector_conformance import open_fds

KEY = Key(rid="r", epoch=0)


class End:
    """A stream that writes down what it hears."""

    def __init__(self, sock: socket.socket, on_message: Callable[[Message], None] | None) -> None:
        """Listen on `sock`."""
        self.heard: list[Message] = []
        self.fds: list[int] = []
        self.eofs: list[str | None] = []
        self.eof = asyncio.Event()
        self.news = asyncio.Event()
        self._on_message = on_message
        self.stream = Stream(sock, self._message, self._ended)

    async def until(self, count: int) -> None:
        """Wait for that many messages."""
        while len(self.heard) < count:
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 20)

    async def ended(self) -> None:
        """Wait for the end of the stream."""
        await asyncio.wait_for(self.eof.wait(), 20)

    def _message(self, message: Message, fds: tuple[int, ...]) -> None:
        self.heard.append(message)
        self.fds += fds
        self.news.set()
        if self._on_message is not None:
            self._on_message(message)

    def _ended(self, reason: str | None) -> None:
        self.eofs.append(reason)
        self.eof.set()


def on_pair(
    work: Callable[[socket.socket, End], Coroutine[Any, Any, None]],
    on_message: Callable[[Message], None] | None = None,
) -> None:
    """Run `work` with a bare socket and a stream at its other end, and see that nothing leaks."""

    async def run() -> None:
        before = open_fds()
        bare, other = socket.socketpair()
        end = End(other, on_message)
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
            bare.sendall(stream[begin:stop])
            await asyncio.sleep(0)
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


def test_descriptors_come_with_their_message() -> None:
    """Each message brings its own descriptors, and the sender's copies are closed."""

    async def run() -> None:
        before = open_fds()
        one, other = socket.socketpair()
        sender, receiver = End(one, None), End(other, None)
        files = [os.memfd_create(f"file-{n}") for n in range(3)]
        for n, fd in enumerate(files):
            os.write(fd, b"%d" % n)
            sender.stream.send(Ack(number=n))
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
        end.stream.send(Ack(number=1))
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
        (b"\xff\xff\xff\xff\x00", "too long"),
        (messages.FRAME_HEAD.pack(3, 0) + b"abc", "malformed message"),
        (messages.FRAME_HEAD.pack(2, 1) + messages.encode(Stop())[5:], "descriptors"),
        (messages.FRAME_HEAD.pack(0, 200), "too long"),
    ],
    ids=["too long", "no message", "missing descriptor", "too many descriptors"],
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

    on_pair(work)


@given(noise=st.binary(min_size=1, max_size=300))
def test_noise_ends_the_stream_or_waits_for_more(noise: bytes) -> None:
    """Random bytes never do anything but end the stream, here at the latest with its close."""

    async def work(bare: socket.socket, end: End) -> None:
        bare.sendall(noise)
        bare.close()
        await end.ended()
        assert len(end.eofs) == 1

    on_pair(work)


def test_a_descriptor_that_nobody_asked_for_is_closed() -> None:
    """A stray descriptor does not stay open."""

    async def work(bare: socket.socket, end: End) -> None:
        fd = os.memfd_create("stray")
        socket.send_fds(bare, [messages.encode(Stop())], [fd])
        os.close(fd)
        await end.until(1)

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
