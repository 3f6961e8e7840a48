"""Credits of one edge: what may be in flight on it, of every stream and of all together.

Both ends are told of every chunk; credit comes back only when the consumer is done with one, or
has no use for it. An edge never stands still for ever: its oldest stream may always have one chunk
in flight, beyond the budget if need be. Otherwise younger streams, which the consumer does not
serve yet, could hold the whole budget while it waits for the oldest.
"""

from __future__ import annotations

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
    """The window of `stage_pp`, where the stage has one."""


class _Out:
    """One stream at its producer."""

    __slots__ = ("chunks", "most_bytes", "size", "waits")

    def __init__(self, most_bytes: int) -> None:
        self.chunks = 0
        self.size = 0
        self.most_bytes = most_bytes
        self.waits: int | None = None


class Outflow:
    """The producer's end: a chunk goes when there is credit, or waits until it is named."""

    def __init__(self, limits: Limits) -> None:
        """Nothing is in flight."""
        self._limits: Final = limits
        self._streams: dict[StreamKey, _Out] = {}
        self._closed: dict[StreamKey, _Out] = {}
        self._queue: dict[StreamKey, None] = {}
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

    def offer(self, stream: StreamKey, size: int) -> bool:
        """Whether a chunk goes now; else it waits, and goes when it is named. One waits at most."""
        found = self._streams[stream]
        assert found.waits is None, f"{stream}: a chunk waits already"
        found.waits = size
        self._queue[stream] = None
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
        return self._flush() if self._queue else []

    def close(self, stream: StreamKey) -> list[StreamKey]:
        """Nothing more of it is sent: what waits is dropped, what is in flight comes back yet."""
        found = self._streams.pop(stream, None)
        if found is None:
            return []
        self._queue.pop(stream, None)
        if found.chunks:
            self._closed[stream] = found
        return self._flush() if self._queue else []

    def reset(self) -> None:
        """The consumer is gone: nothing is in flight any more, and nothing waits."""
        self._streams.clear()
        self._closed.clear()
        self._queue.clear()
        self._used = self._chunks = 0

    def _flush(self) -> list[StreamKey]:
        """Let waiting chunks go in order; behind one that waits for the edge, none does."""
        going: list[StreamKey] = []
        blocked = False
        for stream in list(self._queue):
            found = self._streams[stream]
            size = found.waits
            assert size is not None, f"{stream}: queued without a chunk"
            if not self._in_window(stream, found, size):
                continue  # it waits for its own window, and holds up nobody
            room = self._limits.edge_bytes - self._used
            fits = size <= room and not blocked
            if fits or (room >= 0 and not found.chunks and stream == next(iter(self._streams))):
                del self._queue[stream]
                found.waits = None
                found.chunks += 1
                found.size += size
                self._used += size
                self._chunks += 1
                going.append(stream)
            else:
                blocked = True
        return going

    def _in_window(self, stream: StreamKey, found: _Out, size: int) -> bool:
        limits, window = self._limits, self._limits.window
        if found.chunks and (found.chunks >= limits.chunks or found.size + size > found.most_bytes):
            return False
        if window is None:
            return True
        oldest = next(iter(self._streams))
        return window.admits_request(
            stream, self._streams, len(self._closed)
        ) and window.admits_chunk(
            self._chunks,
            is_oldest=stream == oldest,
            oldest_has_none=not self._streams[oldest].chunks,
        )


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
