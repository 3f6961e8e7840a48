"""The simulator's own account of what happens, and the rules that it holds the runtime to.

It counts what it sees on the wires and asks the machines nothing, so a machine that forgets
something does not forget it here.
"""

from __future__ import annotations

from stagemesh.runtime.core.credits import Limits, StreamKey


class ViolationError(AssertionError):
    """A rule of the runtime was broken."""


class EdgeAccount:
    """What is on one edge between two processes."""

    __slots__ = ("_chunks", "_held", "_largest", "_limits", "_next", "_size")

    def __init__(self, limits: Limits) -> None:
        """Nothing is."""
        self._limits = limits
        self._next: dict[StreamKey, int | None] = {}  # `None` after the last chunk
        self._held: dict[StreamKey, list[int]] = {}  # sizes of what the consumer is not done with
        self._size = 0
        self._chunks = 0
        self._largest = 0

    def sent(self, stream: StreamKey, seq: int, size: int, *, last: bool) -> None:
        """The producer has sent a chunk."""
        expected = self._next.get(stream, 0)
        if seq != expected:
            told = "after the last one" if expected is None else f"in place of {expected}"
            raise ViolationError(f"{stream}: chunk {seq} was sent {told}")
        self._next[stream] = None if last else seq + 1
        held = self._held.get(stream)
        if held is None:
            held = self._held[stream] = []
        held.append(size)
        self._chunks += 1
        self._size += size
        self._largest = max(self._largest, size)
        self._check(stream, size, held)

    def returned(self, stream: StreamKey, size: int) -> None:
        """The producer has heard that the consumer is done with a chunk of that size."""
        held = self._held.get(stream, [])
        if size not in held:
            raise ViolationError(f"{stream}: credit for {size} bytes that were not sent")
        held.remove(size)
        if not held:
            del self._held[stream]
        self._chunks -= 1
        self._size -= size

    def lost(self) -> None:
        """One of the ends is gone."""
        self._held.clear()
        self._size = self._chunks = 0

    def settled(self) -> None:
        """Nothing may be left."""
        if self._held:
            raise ViolationError(f"credit never came back: {self._held}")

    def _check(self, stream: StreamKey, size: int, held: list[int]) -> None:
        limits, over = self._limits, self._size - self._limits.edge_bytes
        if len(held) > limits.chunks:
            raise ViolationError(f"{stream}: {len(held)} chunks in flight")
        if over > self._largest:
            raise ViolationError(f"an edge holds {self._size} bytes")
        if len(held) > 1 and sum(held) > limits.stream_bytes:
            raise ViolationError(f"{stream}: {sum(held)} bytes in flight")
        if len(held) > 1 and over > 0:
            raise ViolationError(f"{stream}: {size} bytes beyond the budget, and not the first")
        window = limits.window
        if window is not None:
            chunks, requests = self._chunks, len(self._held)
            if window.chunks is not None and chunks > window.chunks:
                raise ViolationError(f"an edge holds {chunks} chunks of {window.chunks}")
            if window.requests is not None and requests > window.requests:
                raise ViolationError(f"an edge holds {requests} requests of {window.requests}")


class UserAccount:
    """What one user has been given."""

    __slots__ = ("_chunks", "_deadline", "_ends", "_finals", "_got", "error", "name")

    def __init__(self, name: str, finals: tuple[int, ...], chunks: int, deadline: float) -> None:
        """Nothing yet; every one of `finals` owes `chunks` outputs."""
        self.name = name
        self.error: Exception | None = None
        self._deadline = deadline
        self._chunks = chunks
        self._finals = finals
        self._got = dict.fromkeys(finals, 0)
        self._ends = 0

    @property
    def ended(self) -> bool:
        """Whether the request is over."""
        return self._ends > 0

    def output(self, stage: int, name: str, number: int) -> None:
        """The user reads an output."""
        if name != self.name or number != self._got[stage]:
            told = f"`{self.name}` got output {number} of `{name}`, not {self._got[stage]}"
            raise ViolationError(f"{told}, from stage {stage}")
        self._got[stage] += 1

    def end(self, error: Exception | None, now: float) -> None:
        """The request is over."""
        self._ends += 1
        self.error = error
        if self._ends > 1:
            raise ViolationError(f"`{self.name}` ended twice")
        if now > self._deadline:
            raise ViolationError(f"`{self.name}` ended at {now}, after {self._deadline}")
        if error is None and any(self._got[stage] != self._chunks for stage in self._finals):
            raise ViolationError(f"`{self.name}` ended well with {self._got} of {self._chunks}")
