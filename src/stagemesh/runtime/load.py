"""What a stage process counts, and the `Load` in which it tells the supervisor.

Counters only grow, and each has one thread that writes it: whoever reads needs no lock and may be
an increment late. A `Load` holds all of them since the process began, so that one may be missed;
it rides on the answer to the question how the process is, and only when something has changed.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from typing import Annotated, Final

from msgspec import Meta, Struct, field

CALLER: Final = -1
"""Stands for the caller among the stages at the ends of edges."""
BUCKETS_S: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
"""Upper bounds of the buckets of every time; one more bucket has no bound."""
_NUM_BUCKETS: Final = len(BUCKETS_S) + 1
_Count = Annotated[int, Meta(ge=0)]
_Amounts = Annotated[list[_Count], Meta(min_length=_NUM_BUCKETS, max_length=_NUM_BUCKETS)]


class _Wire(Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """Base of what is sent, as for messages."""


class Times(_Wire, frozen=True, kw_only=True):
    """How long something took, each time that it happened."""

    buckets: _Amounts = field(default_factory=lambda: [0] * _NUM_BUCKETS)
    total_s: float = 0.0

    @property
    def count(self) -> int:
        """How often it happened."""
        return sum(self.buckets)


class OutLoad(_Wire, frozen=True, kw_only=True):
    """What went to one stage, or to the caller."""

    target: int
    chunks: _Count
    num_bytes: _Count
    unanswered: _Count
    """Chunks that the consumer is not done with."""
    wait_s: float
    """Time that chunks have waited for room, all of them together."""


class InLoad(_Wire, frozen=True, kw_only=True):
    """What came from one stage, or from the caller."""

    source: int
    hops: Times
    """Time from the sending of a chunk to its taking, where both clocks are the same."""
    dropped: _Count
    """Chunks that came when nobody wanted them any more."""


class Load(_Wire, frozen=True, kw_only=True):
    """What a stage process has done, and does."""

    waiting: _Count = 0
    """Requests that it holds and has nothing of yet."""
    running: _Count = 0
    """Requests that its engine has begun."""
    outputs: _Count = 0
    steps: Times = Times()
    first_outputs: Times = Times()
    """From the coming of a request to its first output here."""
    outs: list[OutLoad] = []
    ins: list[InLoad] = []


NO_LOAD: Final = Load()
"""Before anything was heard."""


class Clock:
    """Counts times."""

    __slots__ = ("_buckets", "_total_s")

    def __init__(self) -> None:
        """Nothing was counted."""
        self._buckets = [0] * _NUM_BUCKETS
        self._total_s = 0.0

    def add(self, seconds: float) -> None:
        """It has happened once more."""
        self._buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self._total_s += seconds

    @property
    def times(self) -> Times:
        """Everything so far."""
        return Times(buckets=list(self._buckets), total_s=self._total_s)


@dataclasses.dataclass(eq=False, slots=True, kw_only=True)
class LoopCount:
    """What the engine's thread counts."""

    added: int = 0
    started: int = 0
    over: int = 0
    over_started: int = 0
    outputs: int = 0
    steps: Clock = dataclasses.field(default_factory=Clock)
    first_outputs: Clock = dataclasses.field(default_factory=Clock)


@dataclasses.dataclass(eq=False, slots=True, kw_only=True)
class OutCount:
    """What the producing ends of the edges to one stage count."""

    chunks: int = 0
    num_bytes: int = 0
    answered: int = 0
    wait_s: float = 0.0


@dataclasses.dataclass(eq=False, slots=True, kw_only=True)
class InCount:
    """What the consuming ends of the edges from one stage count."""

    source: int = CALLER
    dropped: int = 0
    hops: Clock = dataclasses.field(default_factory=Clock)


class Counts:
    """Everything that one process counts."""

    def __init__(self) -> None:
        """Nothing was counted."""
        self.loop: Final = LoopCount()
        self._outs: dict[int, OutCount] = {}
        self._ins: dict[int, InCount] = {}
        self._told = NO_LOAD

    def out(self, target: int) -> OutCount:
        """Where the edges to a stage count."""
        return self._outs.setdefault(target, OutCount())

    def into(self, source: int) -> InCount:
        """Where the edges from a stage count."""
        return self._ins.setdefault(source, InCount(source=source))

    @property
    def outs(self) -> list[OutLoad]:
        """What went out, by target; where nothing did is left out."""
        return [
            OutLoad(
                target=target,
                chunks=out.chunks,
                num_bytes=out.num_bytes,
                unanswered=max(out.chunks - out.answered, 0),
                wait_s=out.wait_s,
            )
            for target, out in sorted(self._outs.items())
            if out.chunks
        ]

    @property
    def ins(self) -> list[InLoad]:
        """What came in, by source; where nothing did is left out."""
        found = (
            InLoad(source=source, hops=each.hops.times, dropped=each.dropped)
            for source, each in sorted(self._ins.items())
        )
        return [each for each in found if each.dropped or each.hops.count]

    def news(self) -> Load | None:
        """What has been counted, unless that was told before."""
        loop = self.loop
        running = max(loop.started - loop.over_started, 0)
        load = Load(
            running=running,
            waiting=max(loop.added - loop.over - running, 0),
            outputs=loop.outputs,
            steps=loop.steps.times,
            first_outputs=loop.first_outputs.times,
            outs=self.outs,
            ins=self.ins,
        )
        if load == self._told:
            return None
        self._told = load
        return load


class Trail:
    """What was heard of one process, with what has become of it since the time before."""

    def __init__(self) -> None:
        """Nothing was heard."""
        self.load = NO_LOAD
        self.outputs_per_s = 0.0
        self.first_output_s: float | None = None
        """Mean of the requests that had theirs in the last stretch in which any had."""
        self._heard_at: float | None = None

    def heard(self, load: Load | None, now: float) -> None:
        """An answer has come; `None` says that nothing has changed."""
        before, self.load = self.load, self.load if load is None else load
        if self._heard_at is not None and now > self._heard_at:
            num_outputs = self.load.outputs - before.outputs
            self.outputs_per_s = num_outputs / (now - self._heard_at)
        self._heard_at = now
        firsts, seen = self.load.first_outputs, before.first_outputs
        if firsts.count > seen.count:
            seconds = firsts.total_s - seen.total_s
            self.first_output_s = seconds / (firsts.count - seen.count)
