"""The connector without shared memory: the common suite, and its own promises."""

from __future__ import annotations

import pytest

from stagemesh.connectors._tcp import TcpReceiver, TcpSender
from stagemesh.connectors.tcp import CONNECTOR, TcpOptions
from stagemesh.errors import ClosedError
from stagemesh.testing.connector_conformance import ConnectorConformance
from stagemesh.testing.connector_edge import Edge, payload_of

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
