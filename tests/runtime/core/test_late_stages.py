"""Stages whose inputs come whole: who serves them is chosen when that is there."""

from __future__ import annotations

import pytest

from stagemesh.errors import ClosedError, StageFailedError
from stagemesh.runtime.core.actions import Action, Ask, Begin, Cancel, Ended, Enter, StageShape
from stagemesh.runtime.core.dispatcher import Dispatcher
from stagemesh.runtime.core.router import RouterOptions
from stagemesh.runtime.core.waves import Waves
from stagemesh.spec.patterns import Policy

LEFT = ClosedError("it was left")
LEAST = RouterOptions(policy=Policy.LEAST_QUEUE)


def shape(
    stage: int, chunks_to: tuple[int, ...] = (), whole_to: tuple[int, ...] = ()
) -> StageShape:
    """A stage, which the caller feeds when it is the first."""
    return StageShape(
        stage=stage,
        name=f"s{stage}",
        is_entry=stage == 0,
        routing=LEAST,
        chunks_to=chunks_to,
        whole_to=whole_to,
    )


CHAIN = (shape(0, whole_to=(1,)), shape(1, whole_to=(2,)), shape(2))
MIXED = (shape(0, whole_to=(1,)), shape(1, chunks_to=(2,)), shape(2))
FORK = (shape(0, whole_to=(1, 2)), shape(1, whole_to=(2,)), shape(2))
EARLY = (shape(0, chunks_to=(2,)), shape(1, whole_to=(2,)), shape(2))


def dispatcher(
    shapes: tuple[StageShape, ...] = CHAIN, replicas: int = 2, window: int = 9
) -> Dispatcher:
    """Stages with so many replicas each."""
    made = Dispatcher(shapes)
    for one in shapes:
        for replica in range(replicas):
            made.joined(one.stage, replica, slots=9, window=window)
    return made


def end(action: Action) -> Ended:
    """That action, which is an end."""
    assert isinstance(action, Ended)
    return action


@pytest.mark.parametrize(
    ("shapes", "first", "after"),
    [
        (CHAIN, (0,), {0: (1,), 1: (2,), 2: ()}),
        (MIXED, (0,), {0: (1, 2), 1: (), 2: ()}),
        (FORK, (0,), {0: (1, 2), 1: (2,), 2: ()}),
        (EARLY, (0, 1, 2), {0: (), 1: (2,), 2: ()}),
    ],
    ids=["chain", "mixed", "fork", "early"],
)
def test_stages_are_told_in_waves(
    shapes: tuple[StageShape, ...], first: tuple[int, ...], after: dict[int, tuple[int, ...]]
) -> None:
    """Whoever is fed in chunks is told with who feeds it, all others when the first has ended."""
    waves = Waves(shapes)
    assert waves.first == first
    assert {stage: waves.after(stage) for stage in after} == after
    assert waves.later == tuple(stage for stage in after if stage not in first)


def test_a_replica_is_chosen_by_the_counts_of_that_moment() -> None:
    """Who was admitted meanwhile, and has ended, does not count."""
    made = dispatcher()
    assert made.open(Ask(name="a"), 0) == [Begin(name="a", epoch=1, route={0: 0})]
    assert made.open(Ask(name="b"), 0) == [Begin(name="b", epoch=2, route={0: 1})]
    assert made.whole("b", 2, 0, 1) == [Enter(name="b", turn=3, route={1: 0})]
    assert made.finished("b", 2, 0, 1) == []
    assert made.whole("a", 1, 0, 2) == [Enter(name="a", turn=4, route={1: 1})]
    assert made.route("a") == {0: 0, 1: 1}
    assert made.whole("b", 2, 1, 3) == [Enter(name="b", turn=5, route={2: 0})]
    made.finished("b", 2, 1, 3)
    made.open(Ask(name="c"), 4)
    assert made.whole("c", 6, 0, 4) == [Enter(name="c", turn=7, route={1: 0})]
    assert dict(made.bindings[1].router.backlog) == {0: 1, 1: 1}
    assert [type(action).__name__ for action in made.finished("b", 2, 2, 5)] == ["Ended", "Settled"]


def test_stages_that_were_told_are_not_chosen_again() -> None:
    """Another stage that feeds them has ended before, or says so twice, or is of another time."""
    made = dispatcher(FORK)
    made.open(Ask(name="a"), 0)
    assert made.whole("a", 1, 0, 1) == [Enter(name="a", turn=2, route={1: 0, 2: 0})]
    assert made.whole("a", 1, 1, 1) == made.whole("a", 1, 0, 1) == made.whole("a", 7, 0, 1) == []
    made.leave("a", LEFT, 2)
    assert made.whole("a", 1, 0, 3) == []


def test_who_has_ended_comes_nowhere() -> None:
    """It is cancelled where it is, and counts nowhere else."""
    made = dispatcher()
    made.open(Ask(name="a"), 0)
    assert made.leave("a", LEFT, 1)[1:] == [Cancel(name="a", stage=0, replica=0)]
    assert made.whole("a", 1, 0, 2) == []
    assert made.bindings[1].router.total == 0


def test_a_stage_that_nobody_serves_any_more_fails_the_request_then() -> None:
    """It is not too late to try again, as nothing was put out."""
    made = dispatcher(replicas=1)
    made.open(Ask(name="a"), 0)
    made.left(1, 0, "it died", 1)
    ended, cancel = made.whole("a", 1, 0, 2)
    error = end(ended).error
    assert isinstance(error, StageFailedError)
    assert (error.stage, error.retryable) == ("s1", True)
    assert "has no replica left" in str(error)
    assert cancel == Cancel(name="a", stage=0, replica=0)


def test_who_was_taken_on_goes_to_a_held_replica_where_there_is_no_other() -> None:
    """It may be held for a moment only; who is new is refused meanwhile."""
    made = dispatcher()
    for name in "ab":
        made.open(Ask(name=name), 0)
    made.retired(1, 0, 1)
    made.retired(1, 1, 1)
    made.retired(1, 1, 1)
    made.left(1, 0, "it died", 1)
    with pytest.raises(StageFailedError, match="no replica left"):
        made.open(Ask(name="c"), 1)
    assert made.whole("a", 1, 0, 2) == [Enter(name="a", turn=3, route={1: 1})]
    made.retired(1, 0, 2)
    assert made.whole("b", 2, 0, 2) == [Enter(name="b", turn=4, route={1: 1})]
    made.resumed(1, 1)
    assert made.bindings[1].router.backlog[1] == 2


def test_a_stage_that_does_not_hand_over_what_it_has_fails_the_request() -> None:
    """It would otherwise never end, or end without the rest."""
    made = dispatcher(replicas=1)
    made.open(Ask(name="a"), 0)
    ended = end(made.finished("a", 1, 0, 1)[0])
    assert "stage `s0` replica `0` finished without handing over its output" in str(ended.error)
    assert made.names == ()


def test_companions_come_to_a_stage_where_their_parent_does() -> None:
    """Whoever is first, by the key and the cost of the parent, and counted with it at once."""
    made = dispatcher(replicas=3)
    made.open(Ask(name="x"), 0)
    made.whole("x", 1, 0, 0)
    made.open(Ask(name="parent", cost=5), 0)
    made.open(Ask(name="child", parent="parent", cost=2), 0)
    assert made.whole("child", 4, 0, 1) == [Enter(name="child", turn=5, route={1: 1})]
    assert made.bindings[1].router.backlog[1] == 7
    made.open(Ask(name="late", parent="parent", cost=1), 0)
    assert made.bindings[1].router.backlog[1] == 8
    assert made.whole("parent", 3, 0, 1) == [Enter(name="parent", turn=7, route={1: 1})]
    ended = made.leave("late", LEFT, 2)
    assert ended[1:] == [Cancel(name="late", stage=0, replica=made.route("late")[0])]
    assert made.bindings[1].router.backlog[1] == 7
    assert made.route("late").keys() == {0}


def test_companions_stay_together_without_their_parent() -> None:
    """It has gone before it came to the stage."""
    made = dispatcher(replicas=3)
    made.open(Ask(name="parent"), 0)
    for name in ("one", "two"):
        made.open(Ask(name=name, parent="parent"), 0)
    made.leave("parent", LEFT, 1)
    made.failed("parent", 1, 0, "it was dropped", 1)
    made.whole("two", 3, 0, 2)
    assert made.route("one")[1] == made.route("two")[1]
    assert made.whole("one", 2, 0, 3)[0] == Enter(name="one", turn=5, route={1: 0})


def test_a_replica_that_dies_before_a_companion_comes_to_it_fails_it() -> None:
    """What its parent had there is lost; the stage was not told, and is not to blame."""
    made = dispatcher()
    made.open(Ask(name="parent"), 0)
    made.open(Ask(name="child", parent="parent"), 0)
    made.whole("parent", 1, 0, 1)
    actions = made.left(1, 0, "it died", 2)
    ends = [action for action in actions if isinstance(action, Ended)]
    assert [(one.name, one.stage) for one in ends] == [("parent", 1), ("child", None)]
    assert made.bindings[1].router.total == 0


def test_a_companion_that_waits_loses_the_replica_that_it_was_to_come_to() -> None:
    """It is told when it comes there."""
    made = dispatcher(replicas=1, window=1)
    made.open(Ask(name="parent"), 0)
    made.open(Ask(name="child", parent="parent"), 0)
    made.whole("parent", 1, 0, 1)
    made.left(1, 0, "it died", 2)
    made.joined(1, 0)
    made.failed("parent", 1, 0, "it was dropped", 3)
    (ended, _) = made.whole("child", 3, 0, 4)
    assert "does not run" in str(end(ended).error)
