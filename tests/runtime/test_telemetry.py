"""Who hears of requests, and how ends are told apart."""

from __future__ import annotations

import inspect

import pytest

from stagemesh.errors import (
    ClosedError,
    DeadlineError,
    InvalidRequestError,
    OverloadedError,
    StageFailedError,
    StagemeshError,
)
from stagemesh.runtime.telemetry import Observer, Observers, Outcome, outcome_of

METHODS = [name for name, _ in inspect.getmembers(Observer, inspect.isfunction)]


class Recorder(Observer):
    """Writes down which events it has heard."""

    def __init__(self, trace: str | None = None) -> None:
        """`trace` is what it wants to hear marks under."""
        self.heard: list[str] = []
        for name in METHODS:
            setattr(self, name, self._hears(name, trace if name == "opened" else None))

    def _hears(self, name: str, answer: str | None) -> object:
        def hear(*_given: object) -> str | None:
            self.heard.append(name)
            return answer

        return hear


@pytest.mark.parametrize("name", METHODS)
def test_every_event_reaches_all_observers(name: str) -> None:
    """None of them is forgotten, and an observer need not care."""
    observers, first, second = Observers(), Recorder(), Recorder()
    for each in (first, Observer(), second):
        observers.add(each)
    method = getattr(observers, name)
    method(*[None] * len(inspect.signature(method).parameters))
    assert first.heard == second.heard == [name]


def test_the_first_trace_context_counts() -> None:
    """Others hear of the marks under it as well."""
    observers = Observers()
    assert observers.opened("r") is None
    for each in (Recorder(), Recorder("a"), Recorder("b")):
        observers.add(each)
    assert observers.opened("r") == "a"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, Outcome.FINISHED),
        (ClosedError("left"), Outcome.CANCELLED),
        (DeadlineError("late"), Outcome.DEADLINE),
        (InvalidRequestError("bad"), Outcome.INVALID),
        (OverloadedError("many", retry_after_s=1.0), Outcome.OVERLOADED),
        (StageFailedError("dead"), Outcome.FAILED),
    ],
)
def test_ends_are_told_apart(error: StagemeshError | None, outcome: Outcome) -> None:
    """By the error; what a closing system ends has not been left by anybody."""
    assert outcome_of(error, is_closing=False) is outcome
    closing = Outcome.CLOSED if outcome is Outcome.CANCELLED else outcome
    assert outcome_of(error, is_closing=True) is closing
