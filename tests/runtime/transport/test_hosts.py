"""Streams over TCP, plain and under TLS."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stagemesh.config.launch import LaunchOptions
from stagemesh.errors import DiagnosticError
from stagemesh.runtime import messages
from stagemesh.runtime.messages import Ack, Attached, Chunk, Key, Message, PeerUp, ProtocolError
from stagemesh.runtime.stream import Stream
from stagemesh.runtime.transport.door import listen
from stagemesh.runtime.transport.tls import TlsFiles, secured
from stagemesh.testing.connector_conformance import open_fds
from tests.waiting import WAIT_S

KEY = Key(rid="r", epoch=0)
CHUNK = Chunk(key=KEY, seq=0, number=0, body=b"x" * 5000, last=False)
HERE = Path(__file__).parent / "certificates"


def files(whose: str = "ours", authority: str = "ours") -> TlsFiles:
    """Certificates of a test."""
    return TlsFiles(
        cert=str(HERE / f"{whose}.pem"),
        key=str(HERE / f"{whose}.key"),
        ca=str(HERE / f"{authority}-ca.pem"),
    )


class End:
    """A stream that writes down what it hears."""

    def __init__(self, sock: socket.socket) -> None:
        """Listen."""
        self.heard: list[Message] = []
        self.bulks: list[bytes] = []
        self.news = asyncio.Event()
        self.end: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.stream = Stream(sock, self._message, self.end.set_result, bulk_limit=1 << 24)

    async def until(self, count: int) -> None:
        """Wait for that many messages."""
        while len(self.heard) < count:
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), WAIT_S)

    def _message(self, message: Message, attached: Attached) -> None:
        self.heard.append(message)
        self.bulks += map(bytes, attached.bulk)
        self.news.set()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection between two loopback addresses."""
    with listen("127.0.0.2", 0) as listener:
        dialer = socket.create_connection(listener.getsockname(), source_address=("127.0.0.3", 0))
        acceptor, _ = listener.accept()
    return dialer, acceptor


def between(
    work: Callable[[End, End], Coroutine[Any, Any, None]],
    dialer_files: TlsFiles | None = None,
    acceptor_files: TlsFiles | None = None,
) -> None:
    """Run `work` with both ends, and see that no descriptor is left."""

    async def run() -> None:
        before = open_fds()
        one, other = tcp_pair()
        dialer = End(secured(one, dialer_files, is_acceptor=False))
        acceptor = End(secured(other, acceptor_files, is_acceptor=True))
        try:
            await asyncio.wait_for(work(dialer, acceptor), WAIT_S)
        finally:
            dialer.stream.close()
            acceptor.stream.close()
        assert open_fds() == before

    asyncio.run(run())


SECURITY = pytest.mark.parametrize("tls", [None, files()], ids=["plain", "TLS"])


@SECURITY
def test_messages_and_bulk_go_both_ways_in_order(tls: TlsFiles | None) -> None:
    """The framing is that of a Unix socket; more than a socket holds is sent as it is read."""
    bulk = [os.urandom(3_000_000), os.urandom(17), os.urandom(70_000)]

    async def work(dialer: End, acceptor: End) -> None:
        for source in (dialer, acceptor):
            for piece in bulk:
                source.stream.send(CHUNK, bulk=[memoryview(piece)[:11], memoryview(piece)[11:]])
                source.stream.send(Ack(numbers=(len(piece),)))
        for target in (dialer, acceptor):
            await target.until(6)
            assert target.heard[::2] == [CHUNK] * 3
            assert target.heard[1::2] == [Ack(numbers=(len(piece),)) for piece in bulk]
            assert target.bulks == bulk

    between(work, tls, tls)


@SECURITY
def test_who_only_listens_hears(tls: TlsFiles | None) -> None:
    """Neither end has to speak first; the end is told once, without a reason."""

    async def work(dialer: End, acceptor: End) -> None:
        acceptor.stream.send(Ack(numbers=(1,)))
        await dialer.until(1)
        acceptor.stream.close()
        assert await asyncio.wait_for(dialer.end, WAIT_S) is None

    between(work, tls, tls)


@SECURITY
def test_descriptors_do_not_travel_between_hosts(tls: TlsFiles | None) -> None:
    """To ask for it is an error here, to announce one is an error there."""

    async def work(dialer: End, acceptor: End) -> None:
        fd = os.memfd_create("file")
        with pytest.raises(ProtocolError, match="descriptors do not travel"):
            dialer.stream.send(PeerUp(stage=0, replica=0), (fd,))
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
        dialer.stream.send(Ack(numbers=(1,)))
        dialer.stream.send_frame(messages.encode(PeerUp(stage=0, replica=0), 1))
        assert "descriptors" in str(await asyncio.wait_for(acceptor.end, WAIT_S))
        assert acceptor.heard == [Ack(numbers=(1,))]

    between(work, tls, tls)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (files(), files("theirs", "theirs")),
        (files("theirs", "ours"), files()),
        (files(), None),
        (None, files()),
    ],
    ids=["two authorities", "a foreign dialer", "TLS to plain", "plain to TLS"],
)
def test_ends_that_do_not_believe_each_other_say_nothing(
    ours: TlsFiles | None, theirs: TlsFiles | None
) -> None:
    """Nothing is heard on either side, and both streams end."""

    async def work(dialer: End, acceptor: End) -> None:
        dialer.stream.send(CHUNK)
        acceptor.stream.send(CHUNK)
        done, _ = await asyncio.wait(
            [dialer.end, acceptor.end], return_when=asyncio.FIRST_COMPLETED
        )
        assert any(isinstance(future.result(), str) for future in done)
        dialer.stream.close()
        acceptor.stream.close()
        assert dialer.heard == acceptor.heard == []

    between(work, ours, theirs)


def test_files_that_are_not_there_or_no_certificates_are_told(tmp_path: Path) -> None:
    """At start, with the names of the files."""
    none = TlsFiles(cert=str(tmp_path / "none"), key=str(HERE / "ours.key"), ca="x")
    mixed = TlsFiles(cert=files().cert, key=files("theirs").key, ca=files().ca)
    for wrong in (none, mixed):
        one, other = socket.socketpair()
        with one, other, pytest.raises(DiagnosticError, match="TLS cannot be set up") as caught:
            secured(one, wrong, is_acceptor=True)
        assert wrong.cert in str(caught.value.diagnostics[0].help)


def test_options_name_all_files_or_none() -> None:
    """What a start names is what it uses."""
    assert TlsFiles.of(LaunchOptions()) is None
    named = LaunchOptions(omni_tls_cert="c", omni_tls_key="k", omni_tls_ca="a")
    assert TlsFiles.of(named) == TlsFiles(cert="c", key="k", ca="a")
