"""The shared-memory connector: the common suite, and its own promises."""

from __future__ import annotations

import asyncio
import errno
import gc
import mmap
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from stagemesh.connectors import _shared_memory
from stagemesh.connectors._shared_memory import SharedMemoryReceiver, SharedMemorySender
from stagemesh.connectors.shared_memory import CONNECTOR, SharedMemoryOptions
from stagemesh.errors import ClosedError, ConnectorError
from stagemesh.runtime.edge import Connector
from stagemesh.runtime.messages import Chunk
from stagemesh.runtime.stream import Stream
from stagemesh.spec.connector import Ticket
from stagemesh.spec.payload import Payload
from stagemesh.testing.connector_conformance import ConnectorConformance
from stagemesh.testing.connector_edge import Edge, open_fds, payload_of
from stagemesh.testing.connector_streams import ONE, TWO, Run
from tests.waiting import WAIT_S

OPTIONS = SharedMemoryOptions(arena_bytes=256 * 1024)


class TestSharedMemory(ConnectorConformance):
    """The common suite."""

    spec = CONNECTOR
    options = SharedMemoryOptions(arena_bytes=256 * 1024, giant_bytes=16 * 1024 * 1024)
    limit = ("giant_bytes", 16 * 1024 * 1024)


def test_a_small_payload_needs_no_memory_file() -> None:
    """Up to 16 KiB travel in the ticket itself."""
    sender = SharedMemorySender(OPTIONS)
    ticket = sender.put(payload_of(16 * 1024))
    assert ticket is not None
    assert ticket.fds == ()
    assert len(ticket.body) > 16 * 1024
    sender.close()


def test_the_arena_is_announced_once() -> None:
    """The descriptor of the arena comes with the first ticket that needs it, and never again."""
    sender = SharedMemorySender(OPTIONS)
    receiver = SharedMemoryReceiver(OPTIONS, sender.released)
    tickets = [sender.put(payload_of(32 * 1024)) for _ in range(2)]
    assert [len(ticket.fds) for ticket in tickets if ticket is not None] == [1, 0]
    for ticket in tickets:
        assert ticket is not None
        receiver.get(ticket)
    receiver.close()
    sender.close()


def test_a_giant_leaves_the_arena_alone() -> None:
    """More than a quarter of the arena goes into one of its own, even when the arena is full."""
    edge = Edge(CONNECTOR, OPTIONS)
    filled = edge.fill(payload_of(32 * 1024))
    assert edge.carry(payload_of(100 * 1024, 3)) == payload_of(100 * 1024, 3)
    assert len(filled) == 8
    edge.close()


def test_the_memory_of_a_giant_is_used_again() -> None:
    """A later giant of about the size needs no new descriptor, one while it is borrowed does."""
    edge = Edge(CONNECTOR, OPTIONS)
    edge.carry(payload_of(500_000)).release()
    before = open_fds()
    again = edge.carry(payload_of(499_000, 5))
    assert open_fds() == before
    beside = edge.carry(payload_of(500_000, 6))
    assert open_fds() > before
    assert (again, beside) == (payload_of(499_000, 5), payload_of(500_000, 6))
    edge.close()


def test_the_memory_of_giants_is_not_kept_without_end() -> None:
    """Beyond a bound the oldest spare memory is given up, at both ends."""
    gc.collect()  # what earlier tests have left to it
    before = open_fds()
    edge = Edge(CONNECTOR, OPTIONS)
    for number in range(12):
        edge.carry(payload_of(10_000_000 * (1 + number % 3))).release()
    edge.carry(payload_of(1)).release()
    assert len(open_fds() - before) <= 6
    edge.close()


def test_the_memory_of_the_last_giant_is_kept_whatever_its_size() -> None:
    """A stream of payloads of one size never asks for fresh memory, however large they are."""
    edge = Edge(CONNECTOR, OPTIONS)
    edge.carry(payload_of(70 * 1024 * 1024)).release()
    before = open_fds()
    assert edge.carry(payload_of(70 * 1024 * 1024, 2)).buffers[0].data[-1] == 2
    assert open_fds() == before
    edge.close()


def test_giants_wait_for_one_another_within_a_budget() -> None:
    """What would exceed it waits while others are lent, and what never fits is refused."""
    options = SharedMemoryOptions(arena_bytes=128 * 1024, giant_bytes=1024 * 1024)
    edge = Edge(CONNECTOR, options)
    held = edge.carry(payload_of(600_000))
    assert edge.sender.put(payload_of(600_000)) is None
    held.release()
    edge.carry(payload_of(1_000_000, 2)).release()
    edge.carry(payload_of(1024 * 1024, 3)).release()
    assert edge.carry(payload_of(600_000, 4)) == payload_of(600_000, 4)
    with pytest.raises(ValueError, match="is too big"):
        edge.sender.put(payload_of(1024 * 1024 + 1))
    edge.close()


@pytest.mark.parametrize("num_bytes", [32 * 1024, 100 * 1024])
@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "too many files"), MemoryError()])
def test_without_memory_the_payload_is_refused(
    num_bytes: int, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system cannot give fails one payload; the next one is carried."""
    edge = Edge(CONNECTOR, OPTIONS)

    def fails(*_arguments: object, **_named: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(_shared_memory, "Arena", fails)
        with pytest.raises(ConnectorError, match="no memory"):
            edge.sender.put(payload_of(num_bytes))
    assert edge.carry(payload_of(num_bytes)) == payload_of(num_bytes)
    edge.close()


def test_metadata_without_bottom_is_refused() -> None:
    """It is the payload's fault, like anything else that cannot be carried."""
    deep: list[object] = []
    deep.append(deep)
    edge = Edge(CONNECTOR, OPTIONS)
    with pytest.raises(ValueError, match="metadata"):
        edge.sender.put(Payload(meta={"deep": deep}))  # type: ignore[dict-item]
    edge.close()


def test_a_receiver_cannot_map_memory_for_writing() -> None:
    """The memory files are sealed: nobody but the sender ever writes into them."""
    sender = SharedMemorySender(OPTIONS)
    for num_bytes in (32 * 1024, 100 * 1024):
        ticket = sender.put(payload_of(num_bytes))
        assert ticket is not None
        (fd,) = ticket.fds
        with pytest.raises(PermissionError):
            mmap.mmap(fd, num_bytes)
        os.close(fd)
    sender.close()


def test_a_memory_file_that_may_shrink_is_refused() -> None:
    """A file whose size is not sealed could pull the rug away, and is refused."""
    sender = SharedMemorySender(OPTIONS)
    receiver = SharedMemoryReceiver(OPTIONS, sender.released)
    ticket = sender.put(payload_of(100 * 1024))
    assert ticket is not None
    for fd in ticket.fds:
        os.close(fd)
    loose = os.memfd_create("loose")
    os.ftruncate(loose, 104 * 1024)
    with pytest.raises(ValueError, match="not sealed"):
        receiver.get(Ticket(number=0, body=ticket.body, fds=(loose,)))
    sender.close()


def test_metadata_too_long_for_a_ticket_is_refused() -> None:
    """Bulk data belongs into a buffer, and the room that was taken comes back."""
    edge = Edge(CONNECTOR, OPTIONS)
    for _ in range(20):
        with pytest.raises(ValueError, match="metadata"):
            edge.sender.put(payload_of(32 * 1024, meta={"text": "x" * 2_000_000}))
    assert len(edge.fill(payload_of(32 * 1024))) == 8
    edge.close()


def test_a_closed_sender_says_so() -> None:
    """Putting after the close raises `ClosedError`."""
    sender = SharedMemorySender(OPTIONS)
    sender.close()
    with pytest.raises(ClosedError):
        sender.put(payload_of(1))


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let this process open no further descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("num_bytes", [32 * 1024, 100 * 1024], ids=["arena", "giant"])
def test_memory_that_cannot_be_mapped_now_is_mapped_later(num_bytes: int) -> None:
    """The payload is refused, and the file is kept for those that come without it."""
    gc.collect()
    before = open_fds()
    edge = Edge(CONNECTOR, OPTIONS)
    first = edge.send(payload_of(num_bytes))
    second = edge.send(payload_of(num_bytes, 2)) if num_bytes < 64 * 1024 else None
    with no_more_files(), pytest.raises(ConnectorError, match="Too many open files"):
        edge.receiver.get(first)
    edge.sender.released(first.number)  # as the runtime does with what was refused
    if second is not None:
        assert edge.receiver.get(second) == payload_of(num_bytes, 2)
    assert edge.carry(payload_of(num_bytes, 3)) == payload_of(num_bytes, 3)
    edge.close()
    gc.collect()
    assert open_fds() == before


def test_a_file_that_never_could_be_mapped_goes_with_the_edge() -> None:
    """Closing the receiver closes what it has kept."""
    gc.collect()
    before = open_fds()
    edge = Edge(CONNECTOR, OPTIONS)
    ticket = edge.send(payload_of(32 * 1024))
    with no_more_files(), pytest.raises(ConnectorError):
        edge.receiver.get(ticket)
    edge.close()
    assert open_fds() == before


def test_a_request_whose_memory_cannot_be_mapped_fails_alone() -> None:
    """Its ticket is given back over the stream, and requests after it are served."""

    async def check() -> None:
        run = Run(Connector(spec=CONNECTOR, options=OPTIONS))
        broken = OSError(errno.ENOMEM, "Cannot allocate memory")
        with mock.patch.object(_shared_memory, "map_sealed", side_effect=broken):
            run.out.send(ONE, payload_of(32 * 1024), last=True)
            await run.until(lambda: run.num_acks == 1)
        run.out.send(TWO, payload_of(32 * 1024, 2), last=True)
        await run.until(lambda: run.num_acks == 2)
        assert "no memory for an arena" in run.refused[0]
        assert [(got.key, got.payload) for got in run.got] == [(TWO, payload_of(32 * 1024, 2))]
        run.close()

    asyncio.run(check())


def test_descriptors_that_find_no_room_end_the_stream_and_say_why() -> None:
    """A process that may open no more files cannot be handed memory: it says so."""

    async def check() -> None:
        heard: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        one, other = socket.socketpair()
        source = Stream(one, lambda _message, _attached: None, lambda _reason: None)
        target = Stream(other, lambda _message, _attached: None, heard.set_result)
        fd = os.memfd_create("passed")
        with no_more_files():
            source.send(Chunk(key=ONE, seq=0, number=0, body=b"", last=True), (fd,))
            taken = os.open("/", os.O_RDONLY)  # the place of the one that was sent
            reason = await asyncio.wait_for(heard, WAIT_S)
        os.close(taken)
        source.close()
        target.close()
        assert reason is not None
        assert "no descriptors left" in reason

    asyncio.run(check())


def test_small_payloads_count_as_well() -> None:
    """Tickets that nobody gives back do not pile up: they may hold as much as the arena."""
    edge = Edge(CONNECTOR, OPTIONS)
    borrowed = edge.fill(payload_of(16 * 1024))
    assert len(borrowed) == 15
    assert edge.carry(payload_of(32 * 1024)) == payload_of(32 * 1024), "the arena has room"
    edge.close()
