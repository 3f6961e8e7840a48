"""The connector between stages of one process: the common suite, and its own promises."""

from __future__ import annotations

import pytest

from stagemesh.connectors import _in_process
from stagemesh.connectors._in_process import InProcessSender
from stagemesh.connectors.in_process import CONNECTOR, InProcessOptions
from stagemesh.errors import ClosedError
from stagemesh.spec.connector import Ticket
from stagemesh.testing.connector_conformance import ConnectorConformance
from stagemesh.testing.connector_edge import Edge, payload_of

OPTIONS = InProcessOptions(window_bytes=256 * 1024)


class TestInProcess(ConnectorConformance):
    """The common suite."""

    spec = CONNECTOR
    options = OPTIONS

    def leftovers(self) -> set[str]:
        """What stands on the shelf."""
        return {str(key) for key in _in_process._shelf}


def test_an_edge_does_not_read_tickets_of_a_closed_one() -> None:
    """Numbers of senders are not given twice, so that an old ticket never finds a new payload."""
    old, new = Edge(CONNECTOR, OPTIONS), Edge(CONNECTOR, OPTIONS)
    ticket = old.send(payload_of(10))
    old.close()
    new.send(payload_of(20))
    with pytest.raises(ValueError, match="nothing that this process holds"):
        new.receiver.get(ticket)
    new.close()


def test_a_ticket_of_another_length_is_refused() -> None:
    """Before it is looked at."""
    edge = Edge(CONNECTOR, OPTIONS)
    with pytest.raises(ValueError, match="malformed"):
        edge.receiver.get(Ticket(number=0, body=b"x" * 17))


def test_a_closed_sender_says_so() -> None:
    """Putting after the close raises `ClosedError`."""
    sender = InProcessSender(OPTIONS)
    sender.close()
    with pytest.raises(ClosedError):
        sender.put(payload_of(1))
