"""Whatever bytes come, on whatever kind of socket: messages, or the end of that one stream."""

from __future__ import annotations

import asyncio
import os
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagemesh.runtime import messages
from stagemesh.runtime.frames import FrameReader
from stagemesh.runtime.messages import FRAME_HEAD, Attached, Message, ProtocolError
from stagemesh.runtime.stream import Stream
from stagemesh.runtime.transport.door import listen
from stagemesh.runtime.transport.tls import TlsFiles, secured
from stagemesh.testing.connector_conformance import open_fds
from tests.runtime.test_messages import SAMPLES
from tests.waiting import WAIT_S

BULK_LIMIT = 1 << 16
CERTIFICATES = Path(__file__).parent / "transport" / "certificates"
FILES = TlsFiles(
    cert=str(CERTIFICATES / "ours.pem"),
    key=str(CERTIFICATES / "ours.key"),
    ca=str(CERTIFICATES / "ours-ca.pem"),
)
LENGTHS = st.one_of(st.integers(0, 300), st.sampled_from([1 << 24, (1 << 24) + 1, (1 << 32) - 1]))
BULKS = st.one_of(st.integers(0, 100), st.sampled_from([1 << 16, (1 << 16) + 1, 1 << 40, 1 << 63]))
HEADS = st.builds(FRAME_HEAD.pack, LENGTHS, st.sampled_from([0, 0, 0, 1, 8, 9, 255]), BULKS)
PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-5, 1 << 64 - 1),
        st.floats(),
        st.text(),
        st.binary(max_size=40),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)
WHOLE = st.sampled_from(SAMPLES).map(messages.encode)
STREAMS = st.lists(st.one_of(st.binary(max_size=60), HEADS, WHOLE), max_size=6).map(b"".join)


def frames_of(data: bytes, reader: FrameReader) -> Iterator[Message]:
    """Everything that is found in `data`, given as it fits."""
    left = memoryview(data)
    while left:
        room = reader.room
        count = min(len(room), len(left))
        room[:count] = left[:count]
        left = left[count:]
        for frame in reader.received(count):
            yield frame.message


@settings(max_examples=300)
@given(data=STREAMS)
def test_bytes_are_messages_or_a_protocol_error(data: bytes) -> None:
    """Nothing else is raised, and no more memory is taken than what has come is worth."""
    reader = FrameReader(BULK_LIMIT)
    tracemalloc.start()
    try:
        for message in frames_of(data, reader):
            assert isinstance(message, Message)
    except ProtocolError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 200_000 + 20 * len(data)


@given(sample=st.sampled_from(SAMPLES), data=st.data())
def test_a_field_of_another_type_is_an_error_or_a_message(
    sample: Message, data: st.DataObject
) -> None:
    """Any value in the place of any other: no bytes become something that is no message."""
    raw: list[object] = msgspec.msgpack.decode(msgspec.msgpack.encode(sample))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(PLAIN)
    body = msgspec.msgpack.encode(raw)
    try:
        found = messages.decode(body)
    except ProtocolError:
        return
    assert isinstance(found, Message)
    sent = messages.encode(found)  # bytes are compared, since a number that is none equals nothing
    assert messages.encode(messages.decode(sent[FRAME_HEAD.size :])) == sent


@pytest.mark.parametrize("depth", [10, 1_000, 100_000, 10_000_000])
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\x92\x06"])
def test_deep_nesting_is_refused(opening: bytes, depth: int) -> None:
    """No depth exhausts the stack; a megabyte of openings is as wrong as one."""
    with pytest.raises(ProtocolError):
        messages.decode((opening * depth)[:8_000_000])
    submit = messages.Submit(key=messages.Key(rid="r", epoch=0), params={}, targets={})
    body = msgspec.msgpack.encode(submit)[:-2] + b"\x81\xa1p" + b"\x91" * depth
    with pytest.raises(ProtocolError):
        messages.decode(body)


@pytest.mark.parametrize("count", [0xFFFFFFFF, 0x7FFFFFFF, 0x00FFFFFF])
@pytest.mark.parametrize("kind", [b"\xc6", b"\xdb", b"\xdd", b"\xdf", b"\xc9"])
def test_a_length_that_is_promised_takes_no_memory(kind: bytes, count: int) -> None:
    """Bytes, texts, arrays and maps of billions, of which nothing follows."""
    tracemalloc.start()
    try:
        for start in (b"", b"\x91", b"\x94\x05"):
            with pytest.raises(ProtocolError):
                messages.decode(start + kind + count.to_bytes(4, "big") + b"\x00" * 16)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def unix_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends on this host."""
    return socket.socketpair()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection."""
    with listen("127.0.0.2", 0) as listener:
        dialer = socket.create_connection(listener.getsockname())
        return dialer, listener.accept()[0]


def tls_pair() -> tuple[socket.socket, socket.socket]:
    """A bare end, and one under TLS: what comes is not even a record."""
    bare, other = tcp_pair()
    return bare, secured(other, FILES, is_acceptor=True)


@pytest.mark.parametrize("pair", [unix_pair, tcp_pair, tls_pair])
@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: stage\r\n\r\n",
        FRAME_HEAD.pack(20, 0, 0) + b"\xc1" * 20,
        FRAME_HEAD.pack(1 << 31, 0, 0),
        FRAME_HEAD.pack(1, 0, 1 << 62) + b"\x00",
        FRAME_HEAD.pack(1, 77, 0) + b"\x00",
        os.urandom(8) + b"\xff" * 4000,
    ],
    ids=["another protocol", "no message", "long", "much bulk", "many descriptors", "noise"],
)
def test_garbage_ends_its_stream_and_nothing_else(
    pair: Callable[[], tuple[socket.socket, socket.socket]], garbage: bytes
) -> None:
    """The owner hears a reason once; another stream on the same loop goes on."""

    async def run() -> None:
        before = open_fds()
        bare, other = pair()
        one, two = socket.socketpair()
        heard: list[Message] = []
        end: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        news = asyncio.Event()

        def on_message(message: Message, _attached: Attached) -> None:
            heard.append(message)
            news.set()

        garbled = Stream(other, on_message, end.set_result, bulk_limit=BULK_LIMIT)
        sound = Stream(one, on_message, lambda _reason: None)
        bare.sendall(garbage)
        assert await asyncio.wait_for(end, WAIT_S)
        two.sendall(messages.encode(messages.Stop()))
        await asyncio.wait_for(news.wait(), WAIT_S)
        assert heard == [messages.Stop()]
        for stream in (garbled, sound):
            stream.close()
        for end_of in (bare, two):
            end_of.close()
        assert open_fds() == before

    asyncio.run(run())


@settings(max_examples=100)
@given(noise=st.binary(min_size=1, max_size=2000))
@pytest.mark.parametrize("pair", [tcp_pair, tls_pair])
def test_noise_between_hosts_ends_the_stream_or_waits(
    pair: Callable[[], tuple[socket.socket, socket.socket]], noise: bytes
) -> None:
    """Once, here at the latest when the other end goes."""

    async def run() -> None:
        bare, other = pair()
        end: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        stream = Stream(other, lambda _message, _attached: None, end.set_result)
        with bare:
            bare.sendall(noise)
        await asyncio.wait_for(end, WAIT_S)
        stream.close()

    asyncio.run(run())
