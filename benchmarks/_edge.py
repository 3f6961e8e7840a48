"""One edge between two processes: payloads over stream and connector, each acknowledged."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from typing import Final

from _hops import WARM_UP, in_child, repetitions

from stagemesh.runtime.edge import Connector, EdgeIn
from stagemesh.runtime.edge_out import EdgeOut
from stagemesh.runtime.edge_threads import settle
from stagemesh.runtime.messages import NOTHING, Ack, Attached, Chunk, Key, Message
from stagemesh.runtime.stream import Stream
from stagemesh.spec.payload import Buffer, Payload

_KEY: Final = Key(rid="hop", epoch=0)
_WAIT_S: Final = 120
_CLOSE_S: Final = 5

Pair = Callable[[], tuple[socket.socket, socket.socket]]
"""Makes two connected sockets."""


def edge_times(connector: Connector, size: int, pair: Pair = socket.socketpair) -> list[float]:
    """Microseconds from each `send` to its acknowledgement, another process consuming."""
    return edge_and_copy_times(connector, size, pair)[0]


def edge_and_copy_times(
    connector: Connector, size: int, pair: Pair = socket.socketpair
) -> tuple[list[float], list[float]]:
    """The same, and after each hop one copy of the bytes to memory that is as warm by then."""
    sock, pid = in_child(lambda theirs: asyncio.run(_consume(theirs, connector)), pair)
    copies: list[float] = []
    times = asyncio.run(_produce(sock, connector, size, copies))
    os.waitpid(pid, 0)
    return times, copies[WARM_UP:]


def loopback() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection on this host, small messages sent at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    for end in (one, other):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other


async def _consume(sock: socket.socket, connector: Connector) -> None:
    """Take every payload, read its first byte, and give it back."""
    gone = asyncio.Event()

    def on_message(message: Message, attached: Attached) -> None:
        assert isinstance(message, Chunk)
        edge.when_here(message, attached, lambda: take(message, attached))

    def take(chunk: Chunk, attached: Attached) -> None:
        payload = edge.take(chunk, attached)
        assert payload.buffers[0].data[0] >= 0
        payload.release()

    stream = Stream(sock, on_message, lambda _reason: gone.set(), bulk_limit=connector.bulk_limit)
    edge = EdgeIn(stream, connector)
    await gone.wait()
    edge.close()
    settle(_CLOSE_S)


async def _produce(
    sock: socket.socket, connector: Connector, size: int, copies: list[float]
) -> list[float]:
    times: list[float] = []
    began = 0.0
    done = asyncio.Event()
    data, target = memoryview(os.urandom(size)), memoryview(bytearray(size))
    payload = Payload(buffers=(Buffer(name="data", dtype="uint8", shape=(size,), data=data),))

    def on_message(message: Message, attached: Attached) -> None:
        assert isinstance(message, Ack)
        assert attached is NOTHING
        edge.acknowledged(message.numbers)
        times.append((time.perf_counter() - began) * 1e6)
        began_copy = time.perf_counter()
        target[:] = data
        copies.append((time.perf_counter() - began_copy) * 1e6)
        if len(times) == repetitions(size) + WARM_UP:
            done.set()
        else:
            send()

    def send() -> None:
        nonlocal began
        began = time.perf_counter()
        edge.send(_KEY, payload, last=False)

    stream = Stream(sock, on_message, lambda _reason: done.set())
    edge = EdgeOut(stream, connector.sender(), lambda _key, _error: None)
    send()
    await asyncio.wait_for(done.wait(), _WAIT_S)
    edge.close()
    stream.close()
    settle(_CLOSE_S)
    return times[WARM_UP:]
