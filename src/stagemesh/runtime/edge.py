"""The two ends of an edge: a connector bound to a stream, on the thread of that stream's loop.

An outgoing end keeps what does not fit yet in the order it came, so that the engine can be told
to pause; room comes back as `Ack`. An incoming end answers every ticket with exactly one `Ack`:
when its payload has been released, on whatever thread, or when the ticket was no good.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final, cast

from stagemesh.plan.values import EdgePlan
from stagemesh.runtime.edge_threads import WaitingReceiver, WaitingSender
from stagemesh.runtime.load import InCount, OutCount
from stagemesh.runtime.messages import Ack, Attached, Chunk, Key
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


@frozen
class Waiting:
    """A chunk that has no room yet."""

    key: Key
    payload: Payload
    last: bool
    since: float


class EdgeOut:
    """The producing end."""

    def __init__(
        self,
        stream: Stream,
        sender: Sender,
        on_sent: Callable[[Key, ValueError | None], None],
        count: OutCount | None = None,
    ) -> None:
        """`on_sent` is called for every chunk that had to wait, once it is gone or refused.

        What goes out is counted in `count`, which several ends may share.
        """
        self._count = OutCount() if count is None else count
        self._stream = stream
        self._sender = sender
        self._on_sent = on_sent
        self._waiting: deque[Waiting] = deque()
        self._seqs: dict[Key, int] = {}
        self._open = True
        self._flushes = False
        self._unanswered = 0
        if isinstance(sender, WaitingSender):
            sender.when_worth_asking(self._flush)

    def send(self, key: Key, payload: Payload, *, last: bool) -> bool:
        """Send a chunk; `False` when it has to wait. Raises `ValueError` when it can never go.

        When the consumer is gone the chunk is dropped: the owner of the request hears of the death.
        """
        if not self._open:
            return True
        if self._waiting or not self._put(key, payload, last=last):
            self._waiting.append(Waiting(key=key, payload=payload, last=last, since=monotonic()))
            return False
        return True

    def when_written(self, then: Callable[[], None]) -> None:
        """Call `then` once every chunk that had room has left this process."""
        self._stream.when_written(then)

    def acknowledged(self, number: int) -> None:
        """The consumer is done with a ticket; send what fits now."""
        self._count.answered += 1
        self._unanswered -= 1
        self._sender.released(number)
        self._flush()

    def drop(self, key: Key) -> None:
        """Forget a request: what waits of it is never sent, and what waited behind it may go."""
        self._seqs.pop(key, None)
        kept = deque(chunk for chunk in self._waiting if chunk.key != key)
        if len(kept) < len(self._waiting):
            self._waiting = kept
            self._flush()

    def close(self) -> None:
        """The consumer is gone: forget everything; what still waits counts as sent."""
        if self._open:
            self._open = False
            self._count.answered += self._unanswered  # nobody will answer
            waiting, self._waiting = self._waiting, deque()
            self._sender.close()
            for chunk in waiting:
                self._on_sent(chunk.key, None)

    def _flush(self) -> None:
        """Send what waits, in order, as far as there is room."""
        if self._flushes:  # `on_sent` may drop a request: the loop below goes on with what is left
            return
        self._flushes = True
        try:
            while self._waiting:
                chunk = self._waiting[0]
                error = None
                try:
                    if not self._put(chunk.key, chunk.payload, last=chunk.last):
                        return
                except ValueError as refusal:
                    error = refusal
                self._waiting.popleft()
                self._count.wait_s += monotonic() - chunk.since
                self._on_sent(chunk.key, error)
        finally:
            self._flushes = False

    def _put(self, key: Key, payload: Payload, *, last: bool) -> bool:
        at = monotonic() if self._stream.is_near else 0.0
        try:
            ticket = self._sender.put(payload)
        except OSError as error:  # no memory, no descriptors: the next payload may find some again
            raise ValueError(f"there is no room for it: {error}") from error
        if ticket is None:
            return False
        seq = self._seqs.get(key, 0)
        if last:
            self._seqs.pop(key, None)
        else:
            self._seqs[key] = seq + 1
        self._count.chunks += 1
        self._unanswered += 1
        self._count.num_bytes += payload.num_bytes
        chunk = Chunk(key=key, seq=seq, number=ticket.number, body=ticket.body, last=last, at=at)
        self._stream.send(chunk, ticket.fds, ticket.bulk)
        return True


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
            self._stream.send(Ack(number=chunk.number))
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

    def discard(self, chunk: Chunk, attached: Attached) -> None:
        """Give back a chunk that nobody wants any more."""
        self._count.dropped += 1
        try:
            self._get(chunk, attached).release()
        except ValueError:
            self._stream.send(Ack(number=chunk.number))

    def drop(self, key: Key) -> None:
        """Forget a request; only then may chunks of that key begin anew."""
        self._seqs.pop(key, None)

    def close(self) -> None:
        """Free everything; borrowed payloads stay readable."""
        self._receiver.close()

    def _get(self, chunk: Chunk, attached: Attached) -> Payload:
        if attached.bulk and chunk.number in self._bulk:
            raise ValueError(f"ticket `{chunk.number}` is still borrowed")
        payload = self._receiver.get(_ticket(chunk, attached))
        if attached.bulk:
            self._bulk[chunk.number] = attached.bulk
        return payload

    def _released(self, number: int) -> None:
        if threading.get_ident() == self._thread:
            self._give_back(number)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: this process is going
            self._loop.call_soon_threadsafe(self._give_back, number)

    def _give_back(self, number: int) -> None:
        bulk = self._bulk.pop(number, None)
        if bulk is not None:
            self._stream.recycle(bulk)
        self._stream.send(Ack(number=number))


def _ticket(chunk: Chunk, attached: Attached) -> Ticket:
    return Ticket(number=chunk.number, body=chunk.body, fds=attached.fds, bulk=attached.bulk)


@dataclass(eq=False, slots=True, kw_only=True)
class Peer:
    """A stream to another process, with the edges on it."""

    stream: Stream
    """The stream."""
    out: EdgeOut | None = None
    """The edge to it, when there is one."""
    into: EdgeIn | None = None
    """The edge from it, when there is one."""

    def close(self) -> None:
        """Close the stream and both ends."""
        self.stream.close()
        if self.out is not None:
            self.out.close()
        if self.into is not None:
            self.into.close()
