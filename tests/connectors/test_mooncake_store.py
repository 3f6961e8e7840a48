"""The connector through a store: the common suite against a real one, and its own promises."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from stagemesh.connectors._mooncake_store.ends import MooncakeStoreReceiver, MooncakeStoreSender
from stagemesh.connectors.mooncake_store import CONNECTOR, MooncakeStoreOptions
from stagemesh.errors import ClosedError, ConnectorError
from stagemesh.testing.connector_conformance import ConnectorConformance
from stagemesh.testing.connector_edge import Edge, payload_of
from tests.connectors.store import Master, free_port

pytest.importorskip(
    "mooncake.store", reason="the extra `mooncake` is not installed", exc_type=ImportError
)
pytestmark = pytest.mark.slow

ROOM = 2 * 1024 * 1024


@pytest.fixture(scope="module")
def master() -> Iterator[Master]:
    """The store of these tests, with a client of this process that stays."""
    master = Master()
    kept = MooncakeStoreSender(master.options)
    kept.put(payload_of(ROOM))
    yield master
    kept.close()
    master.stop()


class TestMooncakeStore(ConnectorConformance):
    """The common suite."""

    spec = CONNECTOR
    options: object
    master: Master
    room_bytes = ROOM
    giant_bytes = 8 * 1024 * 1024
    limit = ("localbuf", 8 * 1024 * 1024)

    @pytest.fixture(autouse=True)
    def _meets(self, master: Master) -> None:
        self.options, self.master = master.options, master

    def held(self) -> object:
        """Connections of the client come and go; names and memory files are none of its own."""
        return None

    def leftovers(self) -> set[str]:
        """The keys of the store."""
        return self.master.keys()

    def settled(self, before: set[str]) -> None:
        """What a killed process has left goes with its segment, soon after its death."""
        self.master.wait(lambda: self.leftovers() == before)


def test_a_small_payload_does_not_meet_the_store(master: Master) -> None:
    """Up to 16 KiB lie in the ticket: nothing is written, read or removed for them."""
    before = master.keys()
    edge = Edge(CONNECTOR, master.options)
    assert edge.carry(payload_of(16 * 1024)) == payload_of(16 * 1024)
    assert master.keys() == before
    edge.close()


def test_a_payload_is_in_the_store_until_it_is_released(master: Master) -> None:
    """The sender removes it then; what was never released goes with the close."""
    before = master.keys()
    edge = Edge(CONNECTOR, master.options)
    one, _two = edge.carry(payload_of(ROOM)), edge.carry(payload_of(ROOM, 2))
    assert len(master.keys() - before) == 2
    one.release()
    assert len(master.keys() - before) == 1
    edge.close()
    assert master.keys() == before


def test_a_key_that_is_gone_is_an_error_of_that_payload(master: Master) -> None:
    """Whoever removed it: the receiver says so, and reads the next one."""
    edge = Edge(CONNECTOR, master.options)
    ticket = edge.send(payload_of(ROOM))
    edge.sender.released(ticket.number)
    with pytest.raises(ConnectorError, match="is gone from the store at"):
        edge.receiver.get(ticket)
    assert edge.carry(payload_of(ROOM, 2)) == payload_of(ROOM, 2)
    edge.close()


def test_a_receiver_removes_what_a_sender_has_left(master: Master) -> None:
    """One that went without a word: its keys are known by their beginning."""
    before = master.keys()
    sender = MooncakeStoreSender(master.options)
    receiver = MooncakeStoreReceiver(master.options, lambda _number: None)
    for fill in range(3):
        ticket = sender.put(payload_of(ROOM, fill))
    assert ticket is not None
    receiver.get(ticket)
    assert len(master.keys() - before) == 3
    receiver.close()
    assert master.keys() == before
    sender.close()


def test_a_store_that_is_full_of_others_refuses(master: Master) -> None:
    """Without anything of its own on the way, a sender would wait for ever: it is an error."""
    first, second = MooncakeStoreSender(master.options), MooncakeStoreSender(master.options)
    while first.put(payload_of(ROOM)) is not None:
        pass
    with pytest.raises(ConnectorError, match="no room"):
        second.put(payload_of(ROOM))
    first.close()
    assert second.put(payload_of(ROOM)) is not None
    second.close()


def test_a_store_that_is_not_there_is_named() -> None:
    """At once, not after the client's own minute and a half; small payloads go all the same."""
    nowhere = MooncakeStoreOptions(
        metadata_server="P2PHANDSHAKE", master=f"127.0.0.1:{free_port()}"
    )
    edge = Edge(CONNECTOR, nowhere)
    with pytest.raises(ConnectorError, match=f"no store answers at `{nowhere.master}`"):
        edge.put(payload_of(ROOM))
    assert edge.carry(payload_of(10)) == payload_of(10)
    edge.close()


def test_a_store_that_dies_is_an_error_of_each_payload() -> None:
    """Puts and gets are refused, and closing ends."""
    master = Master()
    edge = Edge(CONNECTOR, master.options)
    edge.carry(payload_of(ROOM)).release()
    ticket = edge.send(payload_of(ROOM))
    master.stop()
    with pytest.raises(ConnectorError):
        edge.put(payload_of(ROOM))
    with pytest.raises(ConnectorError, match="no store answers"):
        edge.receiver.get(ticket)
    edge.close()


def test_a_closed_sender_says_so(master: Master) -> None:
    """Putting after the close raises `ClosedError`."""
    sender = MooncakeStoreSender(master.options)
    sender.close()
    with pytest.raises(ClosedError):
        sender.put(payload_of(1))


def test_without_the_library_the_extra_is_named(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end is not made where the client of the store cannot be imported."""
    monkeypatch.setitem(sys.modules, "mooncake.store", None)
    with pytest.raises(ConnectorError, match="extra `mooncake`"):
        MooncakeStoreSender(replace(master.options, host="localhost"))
