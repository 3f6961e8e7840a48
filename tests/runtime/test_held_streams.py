"""Streams that hold back what is sent, and send it together."""

from __future__ import annotations

import socket

import pytest

from stagemesh.runtime import messages
from stagemesh.runtime.messages import Ack, Message
from stagemesh.runtime.stream import Stream
from tests.runtime.test_stream import CHUNK, End, on_pair


def _frames(count: int) -> bytes:
    return messages.encode(CHUNK) * count


def test_what_is_held_is_sent_together_and_in_order() -> None:
    """Nothing goes before the end, and what gathers for that goes before what comes later."""

    async def work(bare: socket.socket, end: End) -> None:
        with end.stream.held():
            end.stream.soon(lambda: end.stream.send(Ack(numbers=(1, 2))))
            end.stream.send(CHUNK)
            with end.stream.held(), pytest.raises(BlockingIOError):
                bare.recv(1)
            end.stream.soon(lambda: end.stream.send(Ack(numbers=(3,))))
        first, last = (messages.encode(Ack(numbers=numbers)) for numbers in ((1, 2), (3,)))
        assert bare.recv(65536) == first + _frames(1) + last
        end.stream.soon(lambda: end.stream.send(CHUNK))
        assert bare.recv(65536) == _frames(1)

    on_pair(work)


def test_much_is_not_held_back() -> None:
    """Whoever reads a long batch begins before it ends."""

    async def work(bare: socket.socket, end: End) -> None:
        with end.stream.held():
            for _ in range(20):
                end.stream.send(CHUNK)
            assert bare.recv(65536) == _frames(16)
        assert bare.recv(65536) == _frames(4)

    on_pair(work)


def test_a_stream_that_is_closed_while_it_is_held_has_sent_its_last_word() -> None:
    """Holding back changes nothing for who says something and goes."""

    async def work(bare: socket.socket, end: End) -> None:
        with end.stream.held():
            end.stream.send(CHUNK)
            end.stream.close()
        assert bare.recv(65536) == _frames(1)
        assert bare.recv(1) == b""

    on_pair(work)


def test_what_answers_a_batch_is_sent_in_one_piece() -> None:
    """Messages that came together are answered together: one read costs one write."""

    async def work(bare: socket.socket, end: End) -> None:
        bare.send(_frames(5))
        await end.until(5)
        assert bare.recv(65536) == _frames(5)

    def on_message(message: Message) -> None:
        answering[0].send(message)

    answering: list[Stream] = []

    async def answer(bare: socket.socket, end: End) -> None:
        answering.append(end.stream)
        await work(bare, end)

    on_pair(answer, on_message)
