"""Turns of full-duplex sessions: where they go, and which of them begins."""

from __future__ import annotations

import pytest

from stagemesh.errors import ClosedError, StageFailedError
from stagemesh.runtime.core.actions import (
    Action,
    Ask,
    Begin,
    Cancel,
    Ended,
    SessionRoute,
    StageShape,
)
from stagemesh.runtime.core.dispatcher import Dispatcher
from stagemesh.runtime.core.router import RouterOptions
from stagemesh.runtime.core.turns import Turns
from stagemesh.spec.patterns import Policy

LEFT = ClosedError("it was left")
SECOND = SessionRoute(name="s", route={0: 1, 1: 1})
SHAPES = (StageShape(stage=0, name="front", is_entry=True), StageShape(stage=1, name="back"))


def dispatcher(*names: str, window: int | None = 1) -> Dispatcher:
    """Two stages with two replicas each, and turns of one session on the second ones."""
    made = Dispatcher(SHAPES)
    for stage in (0, 1):
        for replica in (0, 1):
            made.joined(stage, replica, slots=1, window=window)
    for name in names:
        made.open(Ask(name=name, session=SECOND), 0)
    return made


def begun(actions: list[Action]) -> list[str]:
    """Who begins."""
    return [action.name for action in actions if isinstance(action, Begin)]


def ended(actions: list[Action]) -> list[str]:
    """Who ends."""
    return [action.name for action in actions if isinstance(action, Ended)]


def settle(made: Dispatcher, name: str, epoch: int) -> list[Action]:
    """Every stage finishes a request."""
    return [*made.finished(name, epoch, 0, 1), *made.finished(name, epoch, 1, 1)]


def test_turns_stand_in_line() -> None:
    """Whoever leaves it lets the next one go only from the front."""
    turns = Turns()
    assert [turns.came("s", name) for name in "abc"] == [True, False, False]
    assert turns.came("other", "x")
    assert turns.num_behind == 2
    assert turns.over("s", "b") is None
    assert turns.over("s", "a") == "c"
    assert turns.over("s", "c") is None
    assert turns.num_behind == 0
    assert turns.came("s", "d")


def test_a_turn_goes_where_its_session_is() -> None:
    """Whatever routers say, and although the replica takes no other requests."""
    made = dispatcher()
    made.retired(0, 1, 0)
    made.retired(1, 1, 0)
    assert made.open(Ask(name="a", session=SECOND), 0) == [
        Begin(name="a", epoch=1, route={0: 1, 1: 1})
    ]
    assert made.open(Ask(name="other"), 0) == [Begin(name="other", epoch=2, route={0: 0, 1: 0})]


def test_a_turn_begins_when_the_one_before_it_is_settled() -> None:
    """Not already when that has ended for its user: a stage may still hold it."""
    made = dispatcher("a", "b")
    assert made.leave("a", LEFT, 1)[1:] == [
        Cancel(name="a", stage=0, replica=1),
        Cancel(name="a", stage=1, replica=1),
    ]
    assert made.failed("a", 1, 0, "dropped", 2) == []
    assert begun(made.failed("a", 1, 1, "dropped", 2)) == ["b"]


def test_turns_begin_in_order_and_one_that_left_is_passed_over() -> None:
    """Who leaves from the middle lets nobody go before the first has settled."""
    made = dispatcher("a", "b", "c")
    assert made.turns.num_behind == 2
    assert begun(made.leave("b", LEFT, 1)) == []
    assert begun(settle(made, "a", 1)) == ["c"]


def test_a_turn_waits_for_room_at_its_replica_as_others_do() -> None:
    """When that takes no other requests they go elsewhere, and the turn waits on."""
    made = dispatcher()
    made.open(Ask(name="x", session=SessionRoute(name="other", route=SECOND.route)), 0)
    assert begun(made.open(Ask(name="a", session=SECOND), 0)) == []
    made.open(Ask(name="y"), 0)
    assert begun(made.open(Ask(name="z"), 0)) == []
    assert made.route("z")[0] == 1
    assert begun(made.retired(0, 1, 0)) == []
    assert made.route("z")[0] == 0
    assert begun(made.finished("x", 1, 0, 1)) == ["a"]


@pytest.mark.parametrize("stage", [0, 1])
def test_turns_end_with_the_replica_that_they_belong_to(stage: int) -> None:
    """Those that have not begun too, and none of them begins on the way."""
    made = dispatcher("a", "b", "c", window=2)
    actions = made.left(stage, 1, "it died", 1)
    assert ended(actions) == ["c", "b", "a"]
    assert begun(actions) == []
    errors = [action.error for action in actions if isinstance(action, Ended)]
    assert all(isinstance(error, StageFailedError) and error.retryable for error in errors)
    with pytest.raises(StageFailedError, match="no replica"):
        made.open(Ask(name="d", session=SECOND), 1)
    made.joined(stage, 1, slots=1, window=1)
    made.failed("a", 1, 1 - stage, "dropped", 2)
    assert begun(made.open(Ask(name="d", session=SECOND), 1)) == ["d"]


def test_the_deadline_of_a_turn_holds_while_it_waits() -> None:
    """It counts from its coming."""
    made = dispatcher("a")
    made.open(Ask(name="b", session=SECOND, timeout_s=5), 0)
    assert ended(made.tick(5)) == ["b"]
    assert begun(settle(made, "a", 1)) == []


def test_a_session_without_a_group_is_routed_by_the_policies_and_counts_nowhere() -> None:
    """Its turns are what is counted."""
    made = Dispatcher(
        [SHAPES[0], StageShape(stage=1, name="b", routing=RouterOptions(policy=Policy.HASH))]
    )
    with pytest.raises(StageFailedError, match="no replica yet"):
        made.choose("s")
    for stage in (0, 1):
        for replica in (0, 1):
            made.joined(stage, replica)
    first, second = made.choose("s"), made.choose("s")
    assert (first[0], second[0]) == (0, 1)
    assert first[1] == second[1]
    assert {bindings.router.total for bindings in made.bindings.values()} == {0}
