"""The life of a request."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stagemesh.errors import StagemeshError
from stagemesh.runtime.core.request import Action, End, Release, RequestMachine, SendCancel

ERROR = StagemeshError("it failed")


def begun(stages: Iterable[int], finals: Iterable[int] = ()) -> RequestMachine:
    """A request that some stages were told of."""
    request = RequestMachine(finals)
    request.begin(1, stages)
    return request


def test_a_request_ends_when_every_stage_has_finished() -> None:
    """The last stage to finish ends it, in whatever order they finish."""
    request = begun([0, 1])
    assert request.finished(1) == [Release(stage=1)]
    assert request.finished(0) == [Release(stage=0), End(error=None)]
    assert request.settled


def test_a_failure_ends_it_and_cancels_the_others() -> None:
    """The user hears of the failure at once; stages that still hold it are told to forget it."""
    request = begun([0, 1, 2])
    request.finished(0)
    expected = [Release(stage=1), End(error=ERROR), SendCancel(stage=2)]
    assert request.failed(1, ERROR) == expected
    assert not request.settled
    assert request.finished(2) == [Release(stage=2)]
    assert request.settled


def test_a_request_that_waits_is_held_by_nobody() -> None:
    """Cancelled before it began, it is over and settled at once, and no stage hears of it."""
    request = RequestMachine([0])
    assert not request.begun
    assert request.cancel(ERROR) == [End(error=ERROR)]
    assert request.settled


def test_a_request_without_output_can_be_tried_again() -> None:
    """Whether anything was given to the user is remembered; what comes after the end is not."""
    request = begun([0], [0])
    assert not request.has_output
    request.output(0, 0, last=False)
    assert request.has_output
    late = begun([0], [0])
    late.cancel(ERROR)
    late.output(0, 0, last=True)
    assert not late.has_output


@pytest.mark.parametrize(
    ("chunks", "told"),
    [
        ([(0, False), (1, True)], None),
        ([(0, True)], None),
        ([(1, False)], "chunk `1` came in place of `0`"),
        ([(0, False), (0, False)], "chunk `0` came in place of `1`"),
        ([(0, False), (2, True)], "chunk `2` came in place of `1`"),
        ([(0, True), (1, True)], "chunk `1` came after the last one"),
    ],
)
def test_outputs_have_numbers_without_gaps_and_one_end(
    chunks: list[tuple[int, bool]], told: str | None
) -> None:
    """Anything else is told of."""
    request = begun([0], [0])
    found = [request.output(0, seq, last=last) for seq, last in chunks]
    assert found[-1] == told
    assert found[:-1] == [None] * (len(chunks) - 1)


def test_a_final_stage_owes_its_last_output() -> None:
    """A stage without an edge to the user owes none."""
    request = begun([0, 1], [1])
    assert not request.lacks(0)
    assert request.lacks(1)
    request.output(1, 0, last=True)
    assert not request.lacks(1)


class AnyOrder(RuleBasedStateMachine):
    """Any order of events, late and repeated ones included."""

    @initialize(num=st.integers(1, 5))
    def begin(self, num: int) -> None:
        """Bind a request to some stages."""
        self.request = begun(range(num))
        self.num = num
        self.actions: list[Action] = []
        self.gone: set[int] = set()

    @rule(stage=st.integers(0, 5), how=st.sampled_from(["finished", "failed"]))
    def stage_ends(self, stage: int, how: str) -> None:
        """A stage says a terminal word, possibly not for the first time."""
        if how == "finished":
            self.actions += self.request.finished(stage)
        else:
            self.actions += self.request.failed(stage, ERROR)
        if stage < self.num:
            self.gone.add(stage)

    @rule()
    def cancel(self) -> None:
        """The user leaves, or the deadline passes."""
        self.actions += self.request.cancel(ERROR)

    @invariant()
    def the_end_comes_once(self) -> None:
        """Exactly one end once it no longer runs, none before."""
        ends = [action for action in self.actions if isinstance(action, End)]
        assert len(ends) == (0 if self.request.running else 1)

    @invariant()
    def it_runs_only_while_somebody_holds_it(self) -> None:
        """A request that nobody holds has ended."""
        assert self.request.settled == (len(self.gone) == self.num)
        assert not (self.request.settled and self.request.running)

    @invariant()
    def every_stage_is_released_once(self) -> None:
        """Each stage that has ended is released, exactly once."""
        released = [action.stage for action in self.actions if isinstance(action, Release)]
        assert sorted(released) == sorted(self.gone)

    @invariant()
    def nobody_is_cancelled_twice_or_too_late(self) -> None:
        """A cancel goes once to each stage that held the request when it ended."""
        seen: set[int] = set()
        cancelled = []
        for action in self.actions:
            if isinstance(action, Release):
                seen.add(action.stage)
            elif isinstance(action, SendCancel):
                assert action.stage not in seen
                cancelled.append(action.stage)
        assert len(set(cancelled)) == len(cancelled)


TestRequestMachine = AnyOrder.TestCase
