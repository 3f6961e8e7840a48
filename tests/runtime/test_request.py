"""The life of a request."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stagemesh.errors import StagemeshError
from stagemesh.runtime.core.request import Action, End, Release, RequestMachine, SendCancel

ERROR = StagemeshError("it failed")


def test_a_request_ends_when_every_stage_has_finished() -> None:
    """The last stage to finish ends it, in whatever order they finish."""
    request = RequestMachine([0, 1])
    assert request.finished(1) == [Release(stage=1)]
    assert request.finished(0) == [Release(stage=0), End(error=None)]
    assert request.settled


def test_a_failure_ends_it_and_cancels_the_others() -> None:
    """The user hears of the failure at once; stages that still hold it are told to forget it."""
    request = RequestMachine([0, 1, 2])
    request.finished(0)
    expected = [Release(stage=1), End(error=ERROR), SendCancel(stage=2)]
    assert request.failed(1, ERROR) == expected
    assert not request.settled
    assert request.finished(2) == [Release(stage=2)]
    assert request.settled


def test_output_after_the_end_goes_nowhere() -> None:
    """What a stage says after the end is not for the user any more."""
    request = RequestMachine([0])
    assert request.output()
    request.cancel(ERROR)
    assert not request.output()


def test_a_request_without_output_can_be_tried_again() -> None:
    """Whether anything was given to the user is remembered."""
    request = RequestMachine([0])
    assert not request.has_output
    request.output()
    assert request.has_output


class AnyOrder(RuleBasedStateMachine):
    """Any order of events, late and repeated ones included."""

    @initialize(num=st.integers(1, 5))
    def begin(self, num: int) -> None:
        """Bind a request to some stages."""
        self.request = RequestMachine(range(num))
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

    @rule()
    def output(self) -> None:
        """A final stage says something."""
        assert self.request.output() == self.request.running

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
