"""The consuming end of an edge, on the thread of its stream's loop; which connector an edge has.

Every ticket is answered with exactly one `Ack`: when its payload has been released, on whatever
thread, or when the ticket was no good. A payload that is not to be used yet can be kept: its memory
is given back at once, and its credit when the copy is released, or the request forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Final, cast

from stagemesh.plan.values import EdgePlan
from stagemesh.runtime.edge_out import EdgeOut
from stagemesh.runtime.edge_threads import WaitingReceiver, WaitingSender
from stagemesh.runtime.load import InCount
from stagemesh.runtime.messages import MAX_CREDITS, NOTHING, Ack, Attached, Chunk, Credit, Key
from stagemesh.runtime.options import typed
from stagemesh.runtime.stream import Stream
from stagemesh.spec.connector import (
    ConnectorSpec,
    Reach,
    Receiver,
    ReceiverFactory,
    Sender,
    SenderFactory,
    Ticket,
)
from stagemesh.spec.frozen import frozen
from stagemesh.spec.payload import Payload
from stagemesh.spec.reference import resolve
from stagemesh.spec.registry import CONNECTORS

_OVER: Final = -1
"""Stands for the next number of a request that has said its last on an edge."""


@frozen
class Connector:
    """A connector with its options, ready to make ends."""

    spec: ConnectorSpec
    """Its declaration."""
    options: object
    """An instance of its options type."""

    @classmethod
    def of_edge(cls, edge: EdgePlan) -> Connector:
        """The connector that the plan chose for an edge."""
        (spec,) = CONNECTORS.load(edge.connector)
        return cls(spec=spec, options=typed(spec.options, edge.options))

    @classmethod
    def to_caller(cls, sock: socket.socket) -> Connector:
        """The one between the caller and a stage: the first that reaches as far as `sock`."""
        spec = next(spec for spec in CONNECTORS.declarations() if spec.reach is Reach.HOST)
        return cls(spec=spec, options=spec.options()).over(sock)

    def over(self, sock: socket.socket) -> Connector:
        """This one; or, where `sock` leads farther than it reaches, one that needs only `sock`."""
        if sock.family == socket.AF_UNIX or self.spec.reach is Reach.NETWORK:
            return self
        spec = next(
            spec
            for spec in CONNECTORS.declarations()
            if spec.reach is Reach.NETWORK and spec.sender is not None and not spec.blocking
        )
        return Connector(spec=spec, options=spec.options())

    @property
    def bulk_limit(self) -> int:
        """Most bytes that come behind one of its messages."""
        return self.spec.bulk_limit(self.options)

    def sender(self) -> Sender:
        """Make a producing end, on the thread of a loop."""
        made = cast("SenderFactory", resolve(self.spec.sender))(self.options)
        return WaitingSender(made) if self.spec.blocking else made

    def receiver(self, on_release: Callable[[int], None]) -> Receiver:
        """Make a consuming end, on the thread of a loop."""
        made = cast("ReceiverFactory", resolve(self.spec.receiver))(self.options, on_release)
        return WaitingReceiver(made) if self.spec.blocking else made


class EdgeIn:
    """The consuming end."""

    def __init__(self, stream: Stream, connector: Connector, count: InCount | None = None) -> None:
        """Answer releases over `stream`, and count in `count`, which several ends may share."""
        self._count = InCount() if count is None else count
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._receiver = connector.receiver(self._released)
        self._seqs: dict[Key, int] = {}
        self._bulk: dict[int, tuple[memoryview, ...]] = {}
        """Memory that came behind borrowed tickets; the stream has it back on release."""
        self._keeps: set[int] = set()
        """Tickets whose payload is kept when its memory is given back."""
        self._kept: dict[Key, set[int]] = {}
        """Chunks that are kept, by request."""
        self._done: list[int] = []
        """Tickets to be acknowledged, which are all kept or all not."""
        self._done_kept = False
        self._lent: Callable[[], None] | None = None
        """Gives back the memory of a payload that was copied, until its ticket is."""
        self._elsewhere: deque[Callable[[], None]] = deque()
        """What other threads want done on this one."""
        self._is_called = False

    @property
    def num_kept(self) -> int:
        """Chunks that are kept."""
        return sum(map(len, self._kept.values()))

    @property
    def source(self) -> int:
        """The stage that it comes from, or `CALLER`."""
        return self._count.source

    def when_here(self, chunk: Chunk, attached: Attached, then: Callable[[], None]) -> None:
        """Call `then` once a chunk can be taken or discarded without waiting, in order."""
        if isinstance(self._receiver, WaitingReceiver):
            self._receiver.fetch(_ticket(chunk, attached), then)
        else:
            then()

    def take(self, chunk: Chunk, attached: Attached) -> Payload:
        """Borrow the payload of a chunk; raises `ValueError` when malformed or out of order."""
        try:
            payload = self._get(chunk, attached)
        except ValueError:
            self._done_with(chunk.number, kept=False)
            raise
        expected = self._seqs.get(chunk.key, 0)
        if chunk.seq != expected:
            payload.release()
            where = "after the last" if expected == _OVER else f"in place of `{expected}`"
            raise ValueError(f"chunk `{chunk.seq}` came {where}")
        self._seqs[chunk.key] = _OVER if chunk.last else expected + 1
        if chunk.at:
            self._count.hops.add(monotonic() - chunk.at)
        return payload

    def own(self, chunk: Chunk, attached: Attached) -> Payload:
        """Take the payload of a chunk in memory of its own; raises `ValueError` when malformed.

        Whoever takes it sees to the order, and says `done` before anything else is asked here.
        """
        try:
            payload = self._owned(chunk.body) if attached is NOTHING else None
            if payload is None:
                borrowed = self._get(chunk, attached)
                payload, self._lent = borrowed.copied(), borrowed.release
        except ValueError:
            self._done_with(chunk.number, kept=False)
            raise
        if chunk.at:
            self._count.hops.add(monotonic() - chunk.at)
        return payload

    def done(self, chunk: Chunk, *, kept: bool) -> None:
        """Give back the ticket of what is `own` now, and the credit unless that is kept."""
        if kept:
            self._kept.setdefault(chunk.key, set()).add(chunk.seq)
        if self._lent is None:
            self._done_with(chunk.number, kept=kept)
            return
        if kept:
            self._keeps.add(chunk.number)
        release, self._lent = self._lent, None
        release()

    def keep(self, chunk: Chunk, payload: Payload) -> Payload:
        """Give back the memory of a payload that was taken, and nothing else.

        Returns what was in it; releasing that gives the credit. Both may be done on any thread.
        """
        copied = payload.copied()
        self._here(self._keep, chunk, payload.release)
        return replace(copied, release=partial(self._here, self.credit, chunk.key, (chunk.seq,)))

    def credit(self, key: Key, seqs: Sequence[int]) -> None:
        """Give credit for chunks that were kept; others are passed over."""
        kept = self._kept.get(key, set())
        given = tuple(seq for seq in seqs if seq in kept)
        kept.difference_update(given)
        if not kept:
            self._kept.pop(key, None)
        for start in range(0, len(given), MAX_CREDITS):
            self._stream.send(Credit(key=key, seqs=given[start : start + MAX_CREDITS]))

    def discard(self, chunk: Chunk, attached: Attached) -> None:
        """Give back a chunk that nobody wants any more."""
        self._count.dropped += 1
        try:
            self._get(chunk, attached).release()
        except ValueError:
            self._done_with(chunk.number, kept=False)

    def drop(self, key: Key) -> None:
        """Forget a request; only then may chunks of that key begin anew."""
        self._seqs.pop(key, None)
        self.credit(key, sorted(self._kept.get(key, ())))

    def close(self) -> None:
        """Free everything; borrowed payloads stay readable."""
        self._receiver.close()
        self._kept.clear()

    def _get(self, chunk: Chunk, attached: Attached) -> Payload:
        if attached.bulk and chunk.number in self._bulk:
            raise ValueError(f"ticket `{chunk.number}` is still borrowed")
        try:
            payload = self._receiver.get(_ticket(chunk, attached))
        except ValueError:
            raise
        except Exception as error:
            raise _fault(error) from error
        if attached.bulk:
            self._bulk[chunk.number] = attached.bulk
        return payload

    def _owned(self, body: bytes) -> Payload | None:
        try:
            return self._receiver.own(body)
        except ValueError:
            raise
        except Exception as error:
            raise _fault(error) from error

    def _keep(self, chunk: Chunk, release: Callable[[], None]) -> None:
        self._keeps.add(chunk.number)
        self._kept.setdefault(chunk.key, set()).add(chunk.seq)
        release()

    def _released(self, number: int) -> None:
        self._here(self._acknowledge, number)

    def _acknowledge(self, number: int) -> None:
        bulk = self._bulk.pop(number, None)
        if bulk is not None:
            self._stream.recycle(bulk)
        kept = number in self._keeps
        self._keeps.discard(number)
        self._done_with(number, kept=kept)

    def _done_with(self, number: int, *, kept: bool) -> None:
        """Acknowledge a ticket, together with others that are done about now."""
        if kept != self._done_kept or len(self._done) == MAX_CREDITS:
            self._say_done()
        self._done_kept = kept
        self._done.append(number)
        if len(self._done) == 1:
            self._stream.soon(self._say_done)

    def _say_done(self) -> None:
        """Acknowledge, in one message, what has gathered."""
        done, self._done = self._done, []
        if done:
            self._stream.send(Ack(numbers=tuple(done), kept=self._done_kept))

    def _here(self, call: Callable[..., None], *given: object) -> None:
        """Call something on the thread of the loop."""
        if threading.get_ident() == self._thread:
            call(*given)
            return
        self._elsewhere.append(partial(call, *given))
        if not self._is_called:
            self._is_called = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: this process is going
                self._loop.call_soon_threadsafe(self._do_elsewhere)

    def _do_elsewhere(self) -> None:
        self._is_called = False  # first: whatever comes from now on asks for another turn
        with self._stream.held():
            while self._elsewhere:
                self._elsewhere.popleft()()


def _ticket(chunk: Chunk, attached: Attached) -> Ticket:
    return Ticket(number=chunk.number, body=chunk.body, fds=attached.fds, bulk=attached.bulk)


@dataclass(eq=False, slots=True, kw_only=True)
class Peer:
    """A stream to another process, with the edges on it."""

    stream: Stream
    """The stream."""
    incarnation: int = 0
    """Which of the processes that a replica has been, or will be, this is."""
    out: EdgeOut | None = None
    """The edge to it, when there is one."""
    into: EdgeIn | None = None
    """The edge from it, when there is one."""

    def drop(self, key: Key) -> None:
        """Forget a request at both ends."""
        if self.out is not None:
            self.out.drop(key)
        if self.into is not None:
            self.into.drop(key)

    def close(self) -> None:
        """Close the stream and both ends."""
        self.stream.close()
        if self.out is not None:
            self.out.close()
        if self.into is not None:
            self.into.close()


def _fault(error: Exception) -> ValueError:
    """What a request fails with because of a connector that does not keep its contract."""
    return ValueError(f"the connector failed with `{type(error).__name__}: {error}`")
