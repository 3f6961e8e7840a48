"""Credits of one edge: what may be in flight on it, of every stream and of all together.

Both ends are told of every chunk; credit comes back only when the consumer is done with one, or
has no use for it. An edge never stands still for ever: its oldest stream may always have one chunk
in flight, beyond the budget if need be. Otherwise younger streams, which the consumer does not
serve yet, could hold the whole budget while it waits for the oldest.
"""

from __future__ import annotations

import bisect
import itertools
from typing import Final

from stagemesh.runtime.core.windows import StageWindow
from stagemesh.spec.frozen import frozen

StreamKey = tuple[str, int]
"""A request's name and epoch."""


@frozen
class Limits:
    """What an edge may carry at a time."""

    chunks: int = 4
    """Chunks of one stream."""
    stream_bytes: int = 1 << 62
    """Bytes of one stream; a single larger chunk goes alone."""
    edge_bytes: int = 1 << 62
    """Bytes of all streams, but for one chunk of the oldest."""
    window: StageWindow | None = None
    """The window of `stage_pp` and `max_inflight`, where there is one."""


class _Out:
    """One stream at its producer."""

    __slots__ = ("chunks", "in_line", "most_bytes", "place", "size", "waits")

    def __init__(self, most_bytes: int) -> None:
        self.chunks = 0
        self.size = 0
        self.most_bytes = most_bytes
        self.waits: int | None = None
        self.place = 0
        self.in_line = False


class Outflow:
    """The producer's end: a chunk goes when there is credit, or waits until it is named.

    What waits for something of its own, its stream's window or its turn to enter that of the stage,
    is looked at when that comes. All others stand in one line, of which only the front is looked
    at: so nothing costs more when more requests wait.
    """

    def __init__(self, limits: Limits) -> None:
        """Nothing is in flight."""
        self._limits: Final = limits
        self._streams: dict[StreamKey, _Out] = {}
        self._closed: dict[StreamKey, _Out] = {}
        self._outside: dict[StreamKey, None] = {}
        """Streams that the window of the stage does not let in yet, oldest first."""
        self._line: list[tuple[int, StreamKey]] = []
        """Who waits for the edge alone, in the order in which they have asked."""
        self._places = itertools.count()
        self._used = 0
        self._chunks = 0

    @property
    def used(self) -> int:
        """Bytes in flight, those of closed streams included."""
        return self._used

    @property
    def idle(self) -> bool:
        """Whether no stream is open and all credit has come back."""
        return not self._streams and not self._closed

    def in_flight(self, stream: StreamKey) -> int:
        """Chunks of a stream that are not consumed yet."""
        found = self._streams.get(stream) or self._closed.get(stream)
        return 0 if found is None else found.chunks

    def open(self, stream: StreamKey, stream_bytes: int | None = None) -> None:
        """Begin a stream; streams that are opened earlier are older.

        `stream_bytes` is its own limit, in place of that of all.
        """
        limit = self._limits.stream_bytes if stream_bytes is None else stream_bytes
        self._streams[stream] = _Out(limit)
        self._outside[stream] = None
        self._let_in()

    def offer(self, stream: StreamKey, size: int) -> bool:
        """Whether a chunk goes now; else it waits, and goes when it is named. One waits at most."""
        found = self._streams[stream]
        assert found.waits is None, f"{stream}: a chunk waits already"
        found.waits, found.place = size, next(self._places)
        self._line_up(stream, found)
        return stream in self._flush()  # what waited before still waits: nothing has come back

    def granted(self, stream: StreamKey, size: int) -> list[StreamKey]:
        """A chunk of that size is consumed; streams whose waiting chunk goes now."""
        found = self._streams.get(stream)
        if found is None:
            found = self._closed[stream]
            if found.chunks == 1:
                del self._closed[stream]
        found.chunks -= 1
        found.size -= size
        self._used -= size
        self._chunks -= 1
        assert found.chunks >= 0, f"{stream}: credit for what was not sent"
        self._line_up(stream, found)
        self._let_in()
        return self._flush()

    def close(self, stream: StreamKey) -> list[StreamKey]:
        """Nothing more of it is sent: what waits is dropped, what is in flight comes back yet."""
        found = self._streams.pop(stream, None)
        if found is None:
            return []
        self._outside.pop(stream, None)
        self._leave_line(found)
        if found.chunks:
            self._closed[stream] = found
        self._let_in()
        return self._flush()

    def reset(self) -> None:
        """The consumer is gone: nothing is in flight any more, and nothing waits."""
        for forgotten in (self._streams, self._closed, self._outside, self._line):
            forgotten.clear()
        self._used = self._chunks = 0

    def _let_in(self) -> None:
        """Let streams into the window of the stage, as many as it has room for."""
        window = self._limits.window
        while self._outside:
            num_inside = len(self._streams) - len(self._outside) + len(self._closed)
            if window is not None and not window.admits_request(num_inside):
                return
            stream = next(iter(self._outside))
            del self._outside[stream]
            self._line_up(stream, self._streams[stream])

    def _line_up(self, stream: StreamKey, found: _Out) -> None:
        """Put a chunk in the line, by its age, once nothing of its own holds it up any more."""
        waits = found.waits is not None and not found.in_line
        if waits and stream not in self._outside and self._has_room(found):
            bisect.insort(self._line, (found.place, stream))
            found.in_line = True

    def _leave_line(self, found: _Out) -> None:
        if found.in_line:
            del self._line[bisect.bisect_left(self._line, (found.place,))]
        found.waits, found.in_line = None, False

    def _flush(self) -> list[StreamKey]:
        """Let chunks go from the front of the line; behind one that cannot, only the oldest may."""
        going: list[StreamKey] = []
        while self._line and self._may_go(first := self._line[0][1]):
            going.append(self._go(first))
        if self._line:
            oldest = next(iter(self._streams))
            found = self._streams[oldest]
            if found.in_line and not found.chunks and self._may_go(oldest):
                going.append(self._go(oldest))
        return going

    def _go(self, stream: StreamKey) -> StreamKey:
        found = self._streams[stream]
        assert found.waits is not None, f"{stream}: in the line without a chunk"
        found.chunks += 1
        found.size += found.waits
        self._used += found.waits
        self._chunks += 1
        self._leave_line(found)
        return stream

    def _has_room(self, found: _Out) -> bool:
        """Whether the window of the stream itself has room for what waits."""
        assert found.waits is not None, "asked of a chunk that waits"
        is_over = found.size + found.waits > found.most_bytes
        return not found.chunks or (found.chunks < self._limits.chunks and not is_over)

    def _may_go(self, stream: StreamKey) -> bool:
        """Whether the edge has room for a chunk in the line."""
        found, oldest = self._streams[stream], next(iter(self._streams))
        assert found.waits is not None, f"{stream}: in the line without a chunk"
        window, is_oldest = self._limits.window, stream == oldest
        if window is not None and not window.admits_chunk(
            self._chunks, is_oldest=is_oldest, oldest_has_none=not self._streams[oldest].chunks
        ):
            return False
        room = self._limits.edge_bytes - self._used
        return found.waits <= room or (is_oldest and not found.chunks and room >= 0)


@frozen
class Grant:
    """Credit for one chunk, to be sent to the producer."""

    stream: StreamKey
    """The stream."""
    size: int
    """Bytes of the chunk."""


class GapError(ValueError):
    """A chunk does not follow the one before it."""


class _In:
    """One stream at its consumer."""

    __slots__ = ("held", "next_seq", "over")

    def __init__(self) -> None:
        self.next_seq = 0
        self.over = False
        self.held: dict[int, int] = {}


class Inflow:
    """The consumer's end: no gaps, one last chunk, and credit for each chunk exactly once."""

    def __init__(self) -> None:
        """Nothing has come."""
        self._streams: dict[StreamKey, _In] = {}

    @property
    def idle(self) -> bool:
        """Whether no stream is known."""
        return not self._streams

    def received(self, stream: StreamKey, seq: int, size: int, *, last: bool) -> None:
        """A chunk has come and is held; raises `GapError` for one that must not come now."""
        found = self._streams.get(stream)
        if found is None:
            found = self._streams[stream] = _In()
        if found.over:
            raise GapError(f"chunk `{seq}` came after the last one")
        if seq != found.next_seq:
            raise GapError(f"chunk `{seq}` came in place of `{found.next_seq}`")
        found.next_seq = seq + 1
        found.over = last
        found.held[seq] = size

    def consumed(self, stream: StreamKey, seq: int) -> Grant | None:
        """A chunk is done with, in any order; its credit, unless it was given back before."""
        found = self._streams.get(stream)
        size = None if found is None else found.held.pop(seq, None)
        return None if size is None else Grant(stream=stream, size=size)

    def drop(self, stream: StreamKey) -> list[Grant]:
        """Forget a stream; credit for all that it still held."""
        found = self._streams.pop(stream, None)
        if found is None:
            return []
        return [Grant(stream=stream, size=size) for size in found.held.values()]

    def reset(self) -> list[StreamKey]:
        """The producer is gone: forget its streams; those that had not come to their end."""
        broken = [stream for stream, found in self._streams.items() if not found.over]
        self._streams.clear()
        return broken
