"""Ends of connectors that wait for a service, each on a thread of its own beside the loop's.

The loop asks and is called back: an outgoing end says that there is no room until its payload is
out, an incoming one hands a chunk on when its payload is here. So a service that is slow, or does
not answer at all, holds up the requests of its own edge and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Final, NoReturn, TypeAlias

from stagemesh.spec.connector import Receiver, Sender, Ticket
from stagemesh.spec.payload import Payload

_Fetched: TypeAlias = Payload | ValueError
_threads: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()


def settle(timeout_s: float) -> None:
    """Wait until ends that were closed have closed, but not longer."""
    deadline = time.monotonic() + timeout_s
    for thread in list(_threads):
        thread.join(max(0.0, deadline - time.monotonic()))


class _Worker:
    """A thread that does one thing after the other, and answers on the loop that it was made on."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        _threads.add(thread)
        thread.start()

    def do(self, work: Callable[[], None]) -> None:
        """Do it after everything before."""
        self._work.put(work)

    def answer(self, call: Callable[[], None]) -> bool:
        """Have the loop call something; `False` when the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            return False
        return True

    def end(self, work: Callable[[], None]) -> None:
        """Do a last thing, then end."""
        self._work.put(work)
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception as error:  # noqa: BLE001  the edge of a plug-in: the loop hears of it
                self.answer(partial(_raise, error))


@dataclass(eq=False, slots=True, kw_only=True)
class _Attempt:
    """One payload on its way out."""

    payload: Payload
    num_released: int
    """Releases before it began."""
    is_done: bool = False
    ticket: Ticket | None = None
    error: ValueError | None = None


class WaitingSender:
    """A `Sender` whose `put` never waits: it says `None`, and then that it is worth asking again.

    Whoever uses it asks again with the same payload, or with another when that one was dropped.
    """

    def __init__(self, sender: Sender) -> None:
        """Call `sender` on a thread from now on."""
        self._sender = sender
        self._worker = _Worker("stagemesh-put")
        self._attempt: _Attempt | None = None
        self._on_room: Callable[[], None] = _nothing
        self._num_released = 0
        self._is_closed = False

    def when_worth_asking(self, on_room: Callable[[], None]) -> None:
        """Have `on_room` called, on the loop, after `put` said `None` and may say more now."""
        self._on_room = on_room

    def put(self, payload: Payload) -> Ticket | None:
        """Return the ticket of a payload that is out; otherwise see to it and return `None`."""
        attempt = self._attempt
        if attempt is None:
            self._begin(payload)
            return None
        if not attempt.is_done:
            return None
        self._attempt = None
        if attempt.payload is not payload:
            self._give_back(attempt)
            self._begin(payload)
            return None
        if attempt.error is not None:
            raise attempt.error
        if attempt.ticket is None and attempt.num_released < self._num_released:
            self._begin(payload)  # room came back meanwhile, and perhaps no more will
        return attempt.ticket

    def released(self, number: int) -> None:
        """Tell the sender, in time."""
        self._num_released += 1
        self._worker.do(lambda: self._sender.released(number))

    def close(self) -> None:
        """Close the sender after what it is at."""
        if not self._is_closed:
            self._is_closed = True
            self._worker.end(self._sender.close)

    def _begin(self, payload: Payload) -> None:
        attempt = _Attempt(payload=payload, num_released=self._num_released)
        self._attempt = attempt
        self._worker.do(lambda: self._work(attempt))

    def _work(self, attempt: _Attempt) -> None:
        try:
            attempt.ticket = self._sender.put(attempt.payload)
        except ValueError as error:
            attempt.error = error
        self._worker.answer(lambda: self._done(attempt))

    def _done(self, attempt: _Attempt) -> None:
        attempt.is_done = True
        if self._is_closed:
            return
        self._on_room()
        if self._attempt is attempt:  # nobody asked for it any more
            self._attempt = None
            self._give_back(attempt)

    def _give_back(self, attempt: _Attempt) -> None:
        """Nobody wants what was put out: its request was dropped meanwhile."""
        if attempt.ticket is not None:
            for fd in attempt.ticket.fds:
                os.close(fd)
            self.released(attempt.ticket.number)


class WaitingReceiver:
    """A `Receiver` whose `get` never waits, because what a ticket leads to was fetched before."""

    def __init__(self, receiver: Receiver) -> None:
        """Call `receiver` on a thread from now on."""
        self._receiver = receiver
        self._worker = _Worker("stagemesh-get")
        self._fetched: _Fetched | None = None
        self._is_closed = False

    def fetch(self, ticket: Ticket, then: Callable[[], None]) -> None:
        """Fetch what a ticket leads to, in order, then call `then` on the loop, which gets it.

        Tickets that came before the close are fetched after it as well.
        """
        self._worker.do(lambda: self._work(ticket, then))

    def get(self, ticket: Ticket) -> Payload:
        """Return what was fetched for a ticket just now, or raise what was wrong with it."""
        del ticket
        fetched, self._fetched = self._fetched, None
        assert fetched is not None, "it was fetched before"
        if isinstance(fetched, ValueError):
            raise fetched
        return fetched

    def own(self, body: bytes) -> Payload | None:
        """Leave it to `get`: what a ticket leads to was fetched."""
        del body
        return None

    def close(self) -> None:
        """Close the receiver after what it is at."""
        if not self._is_closed:
            self._is_closed = True
            self._worker.end(self._receiver.close)

    def _work(self, ticket: Ticket, then: Callable[[], None]) -> None:
        fetched: _Fetched
        try:
            fetched = self._receiver.get(ticket)
        except ValueError as error:
            fetched = error

        def arrived() -> None:
            self._fetched = fetched
            then()

        if not self._worker.answer(arrived) and isinstance(fetched, Payload):
            with contextlib.suppress(RuntimeError):
                fetched.release()


def _nothing() -> None:
    return None


def _raise(error: Exception) -> NoReturn:
    raise error
