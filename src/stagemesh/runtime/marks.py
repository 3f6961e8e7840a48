"""What a stage writes down of a request that somebody traces."""

from __future__ import annotations

from time import monotonic
from typing import Final

from msgspec.structs import replace

from stagemesh.runtime.messages import Chunk, Hop, Key, Marks

_MOST_HOPS: Final = 10_000
"""Hops of one request that are told; a frame would hold twenty times as many."""


class MarkLog:
    """The marks of one request, as they come."""

    def __init__(self, key: Key) -> None:
        """The request has just been submitted."""
        self._key = key
        self._submitted = monotonic()
        self._started: float | None = None
        self._over: float | None = None
        self._hops: list[Hop] = []
        self._num_left_out = 0

    def taken(self, hop: Hop) -> None:
        """An input is here, and may have been before the request was."""
        if self._started is None:
            self._started = max(hop.taken, self._submitted)
        if len(self._hops) < _MOST_HOPS:
            self._hops.append(hop)
        else:
            self._num_left_out += 1

    def over(self) -> None:
        """The engine is done with it."""
        self._over = monotonic()

    def closed(self) -> Marks:
        """It is gone: everything that there was."""
        return Marks(
            key=self._key,
            submitted=self._submitted,
            started=self._started,
            over=self._over,
            closed=monotonic(),
            hops=self._hops,
            num_left_out=self._num_left_out,
        )


def hop_of(source: int, chunk: Chunk, num_bytes: int) -> Hop:
    """Write down a chunk that is taken now."""
    return Hop(source=source, seq=chunk.seq, num_bytes=num_bytes, sent=chunk.at, taken=monotonic())


def told_here(marks: Marks, submitted: float) -> Marks:
    """Return marks by our clock, from a host whose clock is another.

    What was submitted then is taken to have come at once: nothing tells how long it took.
    """
    by = submitted - marks.submitted

    def ours(time: float | None) -> float | None:
        return None if time is None else time + by

    hops = [
        replace(hop, sent=hop.sent + by if hop.sent else 0.0, taken=hop.taken + by)
        for hop in marks.hops
    ]
    return replace(
        marks,
        submitted=submitted,
        started=ours(marks.started),
        over=ours(marks.over),
        closed=marks.closed + by,
        hops=hops,
    )
