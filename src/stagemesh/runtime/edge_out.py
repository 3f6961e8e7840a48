"""The producing end of an edge, on the thread of its stream's loop.

A chunk goes when its stream has credit and the connector has room, else it waits, in order, so that
the engine can be told to pause. Room comes back with `Ack`. So does credit, unless the consumer
keeps the payload although it is done with the memory: then it comes later, as `Credit`.

Who waits for room has to wait for others for a short time only: consumers keep no memory of an edge
for requests that do not go on, so that the oldest request needs no right of way to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

from stagemesh.runtime.core.credits import Limits, Outflow, StreamKey
from stagemesh.runtime.edge_threads import WaitingSender
from stagemesh.runtime.load import OutCount
from stagemesh.runtime.messages import Chunk, Key
from stagemesh.runtime.stream import Stream
from stagemesh.spec.connector import Sender
from stagemesh.spec.frozen import frozen
from stagemesh.spec.payload import Payload

UNBOUNDED: Final = Limits(chunks=1 << 62)
"""Nothing but the room of the connector."""


@frozen
class _Chunk:
    """What is to be sent."""

    payload: Payload
    size: int
    last: bool
    since: float


class _Sending:
    """One request."""

    __slots__ = ("has_last", "key", "next_seq", "turn", "waiting")

    def __init__(self, key: Key, turn: int | None) -> None:
        self.key = key
        self.turn = turn
        self.next_seq = 0
        self.has_last = False
        self.waiting: deque[_Chunk] = deque()


class EdgeOut:
    """The producing end."""

    def __init__(
        self,
        stream: Stream,
        sender: Sender,
        on_sent: Callable[[Key, ValueError | None], None],
        count: OutCount | None = None,
        limits: Limits = UNBOUNDED,
    ) -> None:
        """`on_sent` is called for every chunk that had to wait, once it is gone or refused.

        What goes out is counted in `count`, which several ends may share.
        """
        self._count = OutCount() if count is None else count
        self._stream = stream
        self._sender = sender
        self._on_sent = on_sent
        self._flow = Outflow(limits)
        self._sending: dict[StreamKey, _Sending] = {}
        self._ready: dict[StreamKey, None] = {}
        """Whose first chunk has credit, and waits for room."""
        self._away: dict[int, tuple[StreamKey, int, int]] = {}
        """Stream, number and size of what is on its way, by ticket."""
        self._kept: dict[tuple[StreamKey, int], int] = {}
        """Size of what the consumer keeps, by stream and number."""
        self._open = True
        self._flushes = False
        if isinstance(sender, WaitingSender):
            sender.when_worth_asking(self._flush)

    @property
    def used(self) -> int:
        """Bytes that the consumer has not given credit for."""
        return self._flow.used

    @property
    def num_waiting(self) -> int:
        """Chunks that wait."""
        return sum(len(sending.waiting) for sending in self._sending.values())

    @property
    def idle(self) -> bool:
        """Whether no request is open and all credit has come back."""
        return self._flow.idle and not (self._sending or self._away or self._kept)

    def open(self, key: Key, stream_bytes: int | None = None, turn: int | None = None) -> None:
        """A request will send here until it is dropped; the earlier it is opened, the older it is.

        `stream_bytes` of it may be on their way, whatever holds for others; `turn` is that of its
        consumer.
        """
        stream = (key.rid, key.epoch)
        if self._open and stream not in self._sending:
            self._sending[stream] = _Sending(key, turn)
            self._flow.open(stream, stream_bytes)

    def send(self, key: Key, payload: Payload, *, last: bool) -> bool:
        """Send a chunk; `False` when it has to wait. Raises `ValueError` when it can never go.

        When the consumer is gone the chunk is dropped: the owner of the request hears of the death.
        """
        if not self._open:
            return True
        self.open(key)
        stream = (key.rid, key.epoch)
        sending = self._sending[stream]
        if sending.has_last:
            raise ValueError("it comes after the last of its request")
        sending.has_last = last
        chunk = _Chunk(payload=payload, size=payload.weight, last=last, since=monotonic())
        has_credit = not sending.waiting and self._flow.offer(stream, chunk.size)
        if has_credit and not self._ready and self._put(stream, sending, chunk):
            self._flush()
            return True
        if has_credit:
            self._ready[stream] = None
        sending.waiting.append(chunk)
        return False

    def when_written(self, then: Callable[[], None]) -> None:
        """Call `then` once every chunk that had room has left this process."""
        self._stream.when_written(then)

    def acknowledged(self, numbers: Iterable[int], *, kept: bool = False) -> None:
        """The consumer is done with tickets, though it may keep the payloads; send what fits."""
        for number in numbers:
            self._sender.released(number)
            away = self._away.pop(number, None)
            if away is not None and kept:
                self._kept[away[:2]] = away[2]
            elif away is not None:
                self._count.answered += 1
                self._grant(away[0], away[2])
        self._flush()

    def credited(self, key: Key, seqs: Iterable[int]) -> None:
        """The consumer is done with what it kept."""
        stream = (key.rid, key.epoch)
        for seq in seqs:
            size = self._kept.pop((stream, seq), None)
            if size is not None:
                self._count.answered += 1
                self._grant(stream, size)
        self._flush()

    def drop(self, key: Key) -> None:
        """Forget a request: what waits of it is never sent, and what waited behind it may go."""
        stream = (key.rid, key.epoch)
        sending = self._sending.pop(stream, None)
        if sending is None:
            return
        self._end(stream, sending)
        self._flush()

    def close(self) -> None:
        """The consumer is gone: forget everything; what still waits counts as sent."""
        if not self._open:
            return
        self._open = False
        self._count.answered += len(self._away) + len(self._kept)  # nobody will answer
        sendings = list(self._sending.values())
        for forgotten in (self._sending, self._ready, self._away, self._kept):
            forgotten.clear()
        self._flow.reset()
        self._sender.close()
        for sending in sendings:
            for _ in sending.waiting:
                self._on_sent(sending.key, None)

    def _grant(self, stream: StreamKey, size: int) -> None:
        self._ready.update(dict.fromkeys(self._flow.granted(stream, size)))

    def _end(self, stream: StreamKey, sending: _Sending) -> None:
        """Nothing more is sent of a request that is forgotten here."""
        if stream in self._ready:  # it has taken credit for a chunk that does not go
            del self._ready[stream]
            self._grant(stream, sending.waiting[0].size)
        self._ready.update(dict.fromkeys(self._flow.close(stream)))

    def _flush(self) -> None:
        """Send what has credit, in order, as far as there is room."""
        if self._flushes:  # `on_sent` may drop a request: the loop below goes on with what is left
            return
        self._flushes = True
        try:
            while self._ready:
                stream = next(iter(self._ready))
                sending = self._sending[stream]
                chunk, error = sending.waiting[0], None
                try:
                    if not self._put(stream, sending, chunk):
                        return
                except ValueError as refusal:
                    error = refusal
                self._went(stream, sending)
                self._count.wait_s += monotonic() - chunk.since
                self._on_sent(sending.key, error)
        finally:
            self._flushes = False

    def _went(self, stream: StreamKey, sending: _Sending) -> None:
        """The first chunk of those that wait is gone, or refused; the next one asks for credit."""
        del self._ready[stream]
        sending.waiting.popleft()
        if sending.waiting and self._flow.offer(stream, sending.waiting[0].size):
            self._ready[stream] = None

    def _put(self, stream: StreamKey, sending: _Sending, chunk: _Chunk) -> bool:
        """Send a chunk that has credit, which goes back when the chunk is refused."""
        at = monotonic() if self._stream.is_near else 0.0
        try:
            try:
                ticket = self._sender.put(chunk.payload)
            except OSError as error:  # no memory, no descriptors: the next one may find some again
                raise ValueError(f"there is no room for it: {error}") from error
        except ValueError:
            self._grant(stream, chunk.size)
            raise
        if ticket is None:
            return False
        seq = sending.next_seq
        sending.next_seq += 1
        self._away[ticket.number] = (stream, seq, chunk.size)
        self._count.chunks += 1
        self._count.num_bytes += chunk.payload.num_bytes
        message = Chunk(
            key=sending.key,
            seq=seq,
            number=ticket.number,
            body=ticket.body,
            last=chunk.last,
            at=at,
            turn=sending.turn,
        )
        self._stream.send(message, ticket.fds, ticket.bulk)
        if chunk.last:  # its place here must not wait for what the request waits for elsewhere
            self._ready.update(dict.fromkeys(self._flow.close(stream)))
        return True
