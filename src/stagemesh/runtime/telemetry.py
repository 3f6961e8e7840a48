"""What can be heard of a running system: an `Observer` is told as it happens, on the system's loop.

Whoever wants to hear overrides what it needs; without observers each event costs one call. What
is not an event, such as how many requests a replica has, is asked for when it is wanted: `Traffic`
here, and the rest in `Health`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from stagemesh.errors import (
    ClosedError,
    DeadlineError,
    InvalidRequestError,
    OverloadedError,
    StagemeshError,
)
from stagemesh.runtime.load import Counts
from stagemesh.runtime.messages import Finished, Hop, Marks
from stagemesh.runtime.outputs import OmniOutput
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.running import Seat
from stagemesh.runtime.session import SessionCounts
from stagemesh.spec.frozen import frozen


class Outcome(Enum):
    """How a request ended."""

    FINISHED = "finished"
    """Every stage has done its part."""
    CANCELLED = "cancelled"
    """Its user has left it."""
    DEADLINE = "deadline"
    """It was not done in time."""
    INVALID = "invalid"
    """It could not be served as it was."""
    OVERLOADED = "overloaded"
    """Too many others ran or waited."""
    CLOSED = "closed"
    """The system was closed or shutting down."""
    FAILED = "failed"
    """A stage failed it, or died."""


@frozen
class StageMarks:
    """What became of a traced request in one stage."""

    seat: Seat
    """The stage, and the replica."""
    marks: Marks
    """Its marks, by the clock of this host as well as can be known."""
    is_near: bool
    """Whether that clock is its own."""


@frozen
class Traffic:
    """The requests that a system has taken on."""

    num_queued: int = 0
    """Requests that wait for room at the entry stage."""
    num_begun: int = 0
    """Requests that stages were told of and have not let go of."""
    queued: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """How many wait, by entry stage and replica."""
    bound: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """What is bound to each replica, in units of cost, by stage."""


@frozen
class Measures:
    """What the caller's side of a system counts."""

    loop_lag_s: float = 0.0
    """How late its loop did what was due, when it looked last."""
    traffic: Traffic = field(default_factory=Traffic)
    """The requests that there are."""
    counts: Mapping[ReplicaId, Counts] = field(default_factory=dict)
    """What went to each replica, and what came."""
    sessions: SessionCounts = field(default_factory=SessionCounts)
    """The full-duplex sessions."""


class Observer:
    """Hears of requests and replicas. What a method raises is a fault of the system."""

    def opened(self, request: str) -> str | None:
        """A request is taken on, in the context of who asks for it.

        Whoever returns a W3C trace context hears of its `marks`.
        """

    def refused(self, request: str, outcome: Outcome, error: StagemeshError) -> None:
        """A request is not taken on."""

    def begun(self, request: str, seats: Mapping[int, Seat]) -> None:
        """There is room for it, and these replicas are told."""

    def entered(self, request: str, seats: Mapping[int, Seat]) -> None:
        """What was before them is whole, and these further replicas are told."""

    def output(self, output: OmniOutput, seat: Seat, hop: Hop) -> None:
        """A final stage has given something, which has come like this."""

    def stage_finished(self, request: str, seat: Seat, finished: Finished) -> None:
        """A stage is done with it."""

    def stage_marks(self, request: str, found: StageMarks) -> None:
        """A stage says what has become of it there, which may be after its end."""

    def ended(self, request: str, outcome: Outcome, error: StagemeshError | None) -> None:
        """It is over for its user."""

    def settled(self, request: str) -> None:
        """No replica holds it any more; its name may be used again."""

    def died(self, seat: Seat, reason: str, seconds: float) -> None:
        """A replica is gone; so long after the first sign of it its requests have failed."""


class Observers(Observer):
    """All that hear of one system."""

    def __init__(self) -> None:
        """Nobody hears."""
        self._all: tuple[Observer, ...] = ()

    @property
    def hear(self) -> bool:
        """Whether there are any."""
        return bool(self._all)

    def add(self, observer: Observer) -> None:
        """Tell `observer` of whatever happens from now on."""
        self._all = (*self._all, observer)

    def opened(self, request: str) -> str | None:
        """Tell all; the first trace context counts."""
        found = [each.opened(request) for each in self._all]
        return next((trace for trace in found if trace is not None), None)

    def refused(self, request: str, outcome: Outcome, error: StagemeshError) -> None:
        """Tell all."""
        for each in self._all:
            each.refused(request, outcome, error)

    def begun(self, request: str, seats: Mapping[int, Seat]) -> None:
        """Tell all."""
        for each in self._all:
            each.begun(request, seats)

    def entered(self, request: str, seats: Mapping[int, Seat]) -> None:
        """Tell all."""
        for each in self._all:
            each.entered(request, seats)

    def output(self, output: OmniOutput, seat: Seat, hop: Hop) -> None:
        """Tell all."""
        for each in self._all:
            each.output(output, seat, hop)

    def stage_finished(self, request: str, seat: Seat, finished: Finished) -> None:
        """Tell all."""
        for each in self._all:
            each.stage_finished(request, seat, finished)

    def stage_marks(self, request: str, found: StageMarks) -> None:
        """Tell all."""
        for each in self._all:
            each.stage_marks(request, found)

    def ended(self, request: str, outcome: Outcome, error: StagemeshError | None) -> None:
        """Tell all."""
        for each in self._all:
            each.ended(request, outcome, error)

    def settled(self, request: str) -> None:
        """Tell all."""
        for each in self._all:
            each.settled(request)

    def died(self, seat: Seat, reason: str, seconds: float) -> None:
        """Tell all."""
        for each in self._all:
            each.died(seat, reason, seconds)


def outcome_of(error: StagemeshError | None, *, is_closing: bool) -> Outcome:
    """Return how a request ended that ended with `error`."""
    match error:
        case None:
            return Outcome.FINISHED
        case ClosedError():
            return Outcome.CLOSED if is_closing else Outcome.CANCELLED
        case DeadlineError():
            return Outcome.DEADLINE
        case InvalidRequestError():
            return Outcome.INVALID
        case OverloadedError():
            return Outcome.OVERLOADED
        case _:
            return Outcome.FAILED
