"""Ends of connectors that wait: the loop goes on meanwhile, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from stagemesh.errors import ConnectorError
from stagemesh.runtime.edge_threads import WaitingReceiver, WaitingSender, settle
from stagemesh.spec.connector import Ticket
from stagemesh.spec.payload import Payload
from tests.waiting import WAIT_S

ONE, TWO = Payload(meta={"n": 1}), Payload(meta={"n": 2})


@dataclass(eq=False)
class Service:
    """Both ends of a connector that does nothing before it is let to."""

    gate: threading.Event = field(default_factory=threading.Event)
    room: int = 10
    calls: list[str] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def put(self, payload: Payload) -> Ticket | None:
        """Wait, then number the payload."""
        self._wait(f"put {payload.meta['n']}")
        if not self.room:
            return None
        self.room -= 1
        return Ticket(number=int(str(payload.meta["n"])), body=b"")

    def get(self, ticket: Ticket) -> Payload:
        """Wait, then give a payload of that number."""
        self._wait(f"get {ticket.number}")
        return Payload(meta={"n": ticket.number})

    def own(self, body: bytes) -> Payload | None:
        """Nothing lies in a body."""
        del body
        return None

    def released(self, number: int) -> None:
        """Have room for one more."""
        self.calls.append(f"released {number}")
        self.room += 1

    def close(self) -> None:
        """Write down."""
        self.calls.append("close")

    def _wait(self, call: str) -> None:
        assert self.gate.wait(WAIT_S)
        self.calls.append(call)
        if self.errors:
            raise self.errors.pop()


class Asker:
    """Asks a sender again whenever that is worth it, as an edge does."""

    def __init__(self, sender: WaitingSender, *payloads: Payload) -> None:
        """Ask for these, one after the other."""
        self.sender = sender
        self.wanted = list(payloads)
        self.tickets: list[int] = []
        self.errors: list[str] = []
        self.num_asked = 0
        self._changed = asyncio.Event()
        sender.when_worth_asking(self.ask)

    def ask(self) -> None:
        """Ask for what is wanted, as far as it goes."""
        self.num_asked += 1
        self._changed.set()
        while self.wanted:
            try:
                ticket = self.sender.put(self.wanted[0])
            except ValueError as error:
                self.errors.append(str(error))
                self.wanted.pop(0)
                continue
            if ticket is None:
                return
            self.tickets.append(ticket.number)
            self.wanted.pop(0)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let the loop run until something holds."""
        async with asyncio.timeout(WAIT_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


def test_the_loop_goes_on_while_a_payload_is_put_out() -> None:
    """The first word is that there is no room; the ticket is there when it is asked for again."""

    async def run() -> None:
        service = Service()
        asker = Asker(WaitingSender(service), ONE, TWO)
        asker.ask()
        asker.ask()
        await asyncio.sleep(0)
        assert (asker.tickets, service.calls) == ([], [])
        service.gate.set()
        await asker.until(lambda: not asker.wanted)
        assert asker.tickets == [1, 2]
        assert service.calls == ["put 1", "put 2"]
        asker.sender.close()

    asyncio.run(run())


def test_a_refusal_is_raised_where_it_was_asked_for() -> None:
    """It is of that payload alone."""

    async def run() -> None:
        service = Service(errors=[ConnectorError("the store is down")])
        service.gate.set()
        asker = Asker(WaitingSender(service), ONE, TWO)
        asker.ask()
        await asker.until(lambda: not asker.wanted)
        assert (asker.tickets, asker.errors) == ([2], ["the store is down"])
        asker.sender.close()

    asyncio.run(run())


def test_room_that_comes_back_during_an_attempt_is_used() -> None:
    """The attempt found none, and no further release will come: it is made again."""

    async def run() -> None:
        service = Service(room=0)
        asker = Asker(WaitingSender(service), ONE)
        asker.ask()
        asker.sender.released(7)
        asker.ask()
        service.gate.set()
        await asker.until(lambda: not asker.wanted)
        assert service.calls == ["put 1", "released 7", "put 1"]
        asker.sender.close()

    asyncio.run(run())


def test_without_room_it_is_not_asked_again_before_a_release() -> None:
    """Nothing spins: the next attempt comes after the release."""

    async def run() -> None:
        service = Service(room=0)
        service.gate.set()
        asker = Asker(WaitingSender(service), ONE)
        asker.ask()
        await asker.until(lambda: service.calls == ["put 1"])
        await asyncio.sleep(0)
        asker.sender.released(7)
        asker.ask()
        await asker.until(lambda: not asker.wanted)
        assert service.calls == ["put 1", "released 7", "put 1"]
        asker.sender.close()

    asyncio.run(run())


@pytest.mark.parametrize("next_one", [[TWO], []], ids=["another", "nothing"])
def test_what_was_dropped_meanwhile_is_given_back(next_one: list[Payload]) -> None:
    """Its request is gone: its room is free again, whether or not something follows."""

    async def run() -> None:
        service = Service()
        asker = Asker(WaitingSender(service), ONE)
        asker.ask()
        asker.wanted = list(next_one)
        service.gate.set()
        await asker.until(lambda: asker.num_asked > 1 and not asker.wanted)
        asker.sender.close()
        settle(WAIT_S)
        assert asker.tickets == [payload.meta["n"] for payload in next_one]
        assert "released 1" in service.calls

    asyncio.run(run())


def test_payloads_arrive_in_order_and_a_close_comes_after_them() -> None:
    """What was announced before the close is fetched and handed on."""

    async def run() -> None:
        service = Service()
        receiver = WaitingReceiver(service)
        got: list[object] = []
        done = asyncio.Event()
        tickets = [Ticket(number=number, body=b"") for number in range(3)]
        for ticket in tickets:

            def take(ticket: Ticket = ticket) -> None:
                got.append(receiver.get(ticket).meta["n"])
                if len(got) == len(tickets):
                    done.set()

            receiver.fetch(ticket, take)
        receiver.close()
        receiver.close()
        assert got == []
        service.gate.set()
        await asyncio.wait_for(done.wait(), WAIT_S)
        assert got == [0, 1, 2]
        settle(WAIT_S)
        assert service.calls == ["get 0", "get 1", "get 2", "close"]

    asyncio.run(run())


def test_what_cannot_be_had_is_raised_when_it_is_taken() -> None:
    """A refusal waits for the one that takes the chunk."""

    async def run() -> None:
        service = Service(errors=[ConnectorError("gone")])
        service.gate.set()
        receiver = WaitingReceiver(service)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ticket = Ticket(number=1, body=b"")

        def take() -> None:
            with pytest.raises(ConnectorError, match="gone"):
                receiver.get(ticket)
            done.set_result(None)

        receiver.fetch(ticket, take)
        await asyncio.wait_for(done, WAIT_S)
        receiver.close()

    asyncio.run(run())


def test_a_fault_of_a_connector_is_heard_on_the_loop() -> None:
    """It is no `ValueError`: whoever runs the loop decides what becomes of the process."""

    async def run() -> None:
        heard: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: heard.set_result(context["exception"])
        )
        service = Service(errors=[TypeError("a fault")])
        service.gate.set()
        sender = WaitingSender(service)
        assert sender.put(ONE) is None
        assert isinstance(await asyncio.wait_for(heard, WAIT_S), TypeError)
        sender.close()
        settle(WAIT_S)
        assert service.calls == ["put 1", "close"]

    asyncio.run(run())


def test_a_payload_that_arrives_when_the_loop_is_gone_is_released() -> None:
    """The process is about to end; what was borrowed goes back all the same."""
    released = threading.Event()

    class Late(Service):
        def get(self, ticket: Ticket) -> Payload:
            self._wait(f"get {ticket.number}")
            return Payload(release=released.set)

    service = Late()

    async def run() -> None:
        receiver = WaitingReceiver(service)
        receiver.fetch(Ticket(number=1, body=b""), lambda: None)
        receiver.close()

    asyncio.run(run())
    service.gate.set()
    assert released.wait(WAIT_S)


def test_settling_does_not_wait_for_a_service_that_hangs() -> None:
    """Its thread is left behind."""

    async def run() -> Service:
        service = Service()
        sender = WaitingSender(service)
        sender.put(ONE)
        sender.close()
        return service

    service = asyncio.run(run())
    settle(0.0)
    assert service.calls == []
    service.gate.set()
    settle(WAIT_S)
    assert service.calls == ["put 1", "close"]
