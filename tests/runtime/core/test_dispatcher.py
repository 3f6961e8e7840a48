"""Requests from admission to the last word, as a shell sees them."""

from __future__ import annotations

import pytest

from stagemesh.errors import (
    ClosedError,
    DeadlineError,
    InvalidRequestError,
    OverloadedError,
    StageFailedError,
)
from stagemesh.runtime.core.actions import Action, Ask, Begin, Cancel, Ended, Settled, StageShape
from stagemesh.runtime.core.dispatcher import Dispatcher
from stagemesh.runtime.core.router import RouterOptions
from stagemesh.spec.patterns import Policy

LEFT = ClosedError("it was left")
SHAPES = (
    StageShape(stage=0, name="front", is_entry=True, key="user"),
    StageShape(stage=1, name="back", is_final=True),
)


def dispatcher(
    *, window: int | None = 1, queue_limit: int | None = None, replicas: int = 2
) -> Dispatcher:
    """Two stages with so many replicas each."""
    made = Dispatcher(SHAPES, queue_limit=queue_limit)
    for stage in (0, 1):
        for replica in range(replicas):
            made.joined(stage, replica, slots=1, window=window)
    return made


def kinds(actions: list[Action]) -> list[tuple[str, str]]:
    """What is to be done, in short."""
    return [(type(action).__name__, action.name) for action in actions]


def test_a_request_begins_ends_and_settles() -> None:
    """The last output comes before the last word; the name may then be used again."""
    made = dispatcher()
    assert made.open(Ask(name="a"), 0) == [Begin(name="a", epoch=1, route={0: 0, 1: 0})]
    assert made.output("a", 1, 1, 0, last=True) is None
    assert made.finished("a", 1, 0, 1) == []
    assert made.finished("a", 1, 1, 1) == [Ended(name="a", error=None), Settled(name="a")]
    assert made.open(Ask(name="a"), 2) == [Begin(name="a", epoch=2, route={0: 1, 1: 1})]


def test_a_stage_that_ends_without_its_last_output_has_failed() -> None:
    """A truncated answer never looks whole."""
    made = dispatcher()
    made.open(Ask(name="a"), 0)
    ended, cancel = made.finished("a", 1, 1, 1)
    assert isinstance(ended, Ended)
    assert "finished without its last output" in str(ended.error)
    assert cancel == Cancel(name="a", stage=0, replica=0)


def test_who_finds_no_room_waits_and_begins_later() -> None:
    """Epochs are given when requests begin, so stages see them ascend."""
    made = dispatcher(replicas=1)
    made.open(Ask(name="a"), 0)
    assert made.open(Ask(name="b"), 0) == made.open(Ask(name="c"), 0) == []
    assert kinds(made.leave("b", LEFT, 1)) == [("Ended", "b"), ("Settled", "b")]
    begin = made.finished("a", 1, 0, 1)
    assert begin == [Begin(name="c", epoch=2, route={0: 0, 1: 0})]
    assert made.names == ("a", "c")


def test_who_waits_outlives_the_replica() -> None:
    """It goes to another one; what had begun there fails, and says whether to try again."""
    made = dispatcher()
    for name in "abcd":
        made.open(Ask(name=name), 0)
    assert made.route("c") == {0: 0}
    actions = made.left(0, 0, "stage `front` replica `0` died", 1)
    assert kinds(actions) == [("Ended", "a"), ("Cancel", "a")]
    error = actions[0].error if isinstance(actions[0], Ended) else None
    assert isinstance(error, StageFailedError)
    assert (error.stage, error.replica, error.retryable) == ("front", 0, True)
    assert made.route("c") == {0: 1}
    assert made.failed("a", 1, 1, "it was dropped", 2) == [Settled(name="a")]
    assert kinds(made.left(0, 1, "it died", 3)) == [
        ("Ended", "d"), ("Settled", "d"), ("Ended", "c"), ("Settled", "c"),
        ("Ended", "b"), ("Cancel", "b"),
    ]  # fmt: skip


def test_an_error_after_an_output_is_not_retryable() -> None:
    """Trying again would be noticed."""
    made = dispatcher()
    made.open(Ask(name="a"), 0)
    made.output("a", 1, 1, 0, last=False)
    ended = made.failed("a", 1, 0, "it failed", 1)[0]
    assert isinstance(ended, Ended)
    assert isinstance(ended.error, StageFailedError)
    assert not ended.error.retryable


def test_a_drained_replica_takes_nothing_new() -> None:
    """What it has goes on."""
    made = dispatcher()
    made.open(Ask(name="a"), 0)
    assert made.retired(0, 0, 1) == []
    assert made.open(Ask(name="b"), 1) == [Begin(name="b", epoch=2, route={0: 1, 1: 1})]
    assert made.finished("a", 1, 0, 2) == []


def test_who_waits_for_a_held_replica_waits_on_where_there_is_no_other() -> None:
    """Where there is another, it goes there."""
    made = dispatcher(replicas=1)
    made.open(Ask(name="a"), 0)
    made.open(Ask(name="b"), 0)
    assert made.retired(0, 0, 1) == []
    assert made.finished("a", 1, 0, 2) == [Begin(name="b", epoch=2, route={0: 0, 1: 0})]
    made.resumed(0, 0)
    made.resumed(1, 0)
    assert made.open(Ask(name="c"), 3) == []
    made.joined(0, 1, slots=1, window=1)
    assert made.retired(0, 0, 4) == [Begin(name="c", epoch=3, route={0: 1, 1: 0})]


def test_too_many_are_refused_with_a_time() -> None:
    """Nothing is held for them."""
    made = dispatcher(queue_limit=0)
    for name in "ab":
        made.open(Ask(name=name), 0)
    with pytest.raises(OverloadedError, match="at most `2` may") as caught:
        made.open(Ask(name="c"), 0)
    assert caught.value.retryable
    assert caught.value.retry_after_s > 0
    assert made.names == ("a", "b")


@pytest.mark.parametrize(("replicas", "told"), [(0, "yet"), (1, "left")])
def test_nobody_yet_and_nobody_left_are_told_apart(replicas: int, told: str) -> None:
    """A replica may still come, or come back."""
    made = dispatcher(replicas=replicas)
    for replica in range(replicas):
        made.left(1, replica, "it died", 0)
    with pytest.raises(StageFailedError, match=f"has no replica {told}") as caught:
        made.open(Ask(name="a"), 0)
    assert caught.value.retryable
    assert made.names == ()


def test_a_name_is_used_once_at_a_time() -> None:
    """Until nobody holds the request any more."""
    made = dispatcher()
    made.open(Ask(name="a"), 0)
    made.leave("a", LEFT, 0)
    with pytest.raises(InvalidRequestError, match="still running"):
        made.open(Ask(name="a"), 0)


def test_deadlines_name_who_is_to_blame() -> None:
    """The first stage that owes; a request that waits ends as well."""
    made = dispatcher(replicas=1)
    made.open(Ask(name="a", timeout_s=5), 0)
    made.open(Ask(name="b", timeout_s=3), 0)
    made.finished("a", 1, 0, 1)
    assert made.next_deadline == 3
    assert made.tick(2) == []
    made.tick(3)
    ended = made.tick(5)[0]
    assert isinstance(ended, Ended)
    assert isinstance(ended.error, DeadlineError)
    assert "not done after 5 s by stage `back` replica `0`" in str(ended.error)
    assert made.next_deadline is None


def test_a_companion_shares_the_replicas_of_its_parent() -> None:
    """Also when the parent only waits, and when it has finished somewhere already."""
    made = dispatcher(replicas=3)
    made.open(Ask(name="x"), 0)
    made.open(Ask(name="parent"), 0)
    assert made.open(Ask(name="child", parent="parent"), 0) == []
    begin = made.finished("parent", 2, 0, 1)
    assert begin == [Begin(name="child", epoch=3, route={0: 1, 1: 1})]
    with pytest.raises(InvalidRequestError, match="does not run"):
        made.open(Ask(name="orphan", parent="nobody"), 1)
    assert "orphan" not in made.names


def test_a_companion_waits_with_its_parent() -> None:
    """It is bound wherever its parent is as soon as that begins."""
    made = dispatcher(replicas=1)
    made.open(Ask(name="x"), 0)
    made.open(Ask(name="parent"), 0)
    made.open(Ask(name="child", parent="parent"), 0)
    made.finished("x", 1, 0, 1)
    assert made.route("child") == {0: 0, 1: 0}
    made.left(1, 0, "it died", 2)
    ended = made.failed("parent", 2, 0, "it was dropped", 3)
    assert kinds(ended) == [("Settled", "parent"), ("Ended", "child"), ("Settled", "child")]


def test_a_request_without_the_key_is_routed_by_its_name() -> None:
    """Whoever has the key goes with all others that have the same."""
    shape = StageShape(
        stage=0,
        name="only",
        is_entry=True,
        key="user",
        routing=RouterOptions(policy=Policy.HASH, load_bound=100),
    )
    made = Dispatcher((shape,))
    for replica in range(8):
        made.joined(0, replica)
    for number in range(20):
        made.open(Ask(name=f"with-{number}", keys={"user": "alice"}), 0)
        made.open(Ask(name=f"without-{number}"), 0)
    assert len({made.route(f"with-{number}")[0] for number in range(20)}) == 1
    assert len({made.route(f"without-{number}")[0] for number in range(20)}) > 1


def test_thousands_that_wait_can_fail_at_once() -> None:
    """Each makes room for the next, which has no replica either."""
    made = dispatcher(replicas=1)
    for number in range(3000):
        made.open(Ask(name=f"{number}"), 0)
    made.left(1, 0, "it died", 1)
    actions = made.failed("0", 1, 0, "it was dropped", 1)
    assert made.names == ()
    assert sum(isinstance(action, Ended) for action in actions) == 2999


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("unit", [(0, 1), (1, 2), (0, 2), (0, 1, 2)])
def test_stages_in_one_process_have_the_same_replica(policy: Policy, unit: tuple[int, ...]) -> None:
    """Whichever of them is bound first; a companion follows its parent as ever."""
    made = Dispatcher(sharing(unit, policy))
    for stage in range(3):
        for replica in range(3):
            made.joined(stage, replica, slots=100)
    for number in range(20):
        parent = f"r{number - 1}" if number % 5 == 4 else None
        made.open(Ask(name=f"r{number}", parent=parent), 0)
        route = made.route(f"r{number}")
        assert len({route[stage] for stage in unit}) == 1
        assert parent is None or made.route(parent) == route


def sharing(unit: tuple[int, ...], policy: Policy = Policy.ROUND_ROBIN) -> list[StageShape]:
    """Three stages of which some share processes."""
    return [
        StageShape(
            stage=stage,
            name=f"s{stage}",
            is_entry=stage == 0,
            is_final=stage == 2,
            routing=RouterOptions(policy=policy, seed=3),
            unit=unit[0] if stage in unit else None,
        )
        for stage in range(3)
    ]


def test_a_process_takes_requests_once_all_in_it_do() -> None:
    """And takes none as soon as one does not, though the others do."""
    made = Dispatcher(sharing((0, 1)))
    made.joined(2, 0)
    made.joined(0, 0, slots=1, window=1)
    with pytest.raises(StageFailedError, match="no replica yet"):
        made.open(Ask(name="a"), 0)
    made.joined(1, 0)
    assert kinds(made.open(Ask(name="a"), 0)) == [("Begin", "a")]
    assert made.retired(1, 0, 0) == []
    with pytest.raises(StageFailedError, match="no replica left"):
        made.open(Ask(name="b"), 0)
    made.resumed(1, 0)
    assert made.open(Ask(name="b"), 0) == []  # it waits for the place that `a` has
    assert made.route("b") == {0: 0}


def test_who_waits_for_a_process_goes_elsewhere_when_one_stage_in_it_is_gone() -> None:
    """Though the death of the other, which it waits for, has not been told yet."""
    made = Dispatcher(sharing((0, 1)))
    for replica in (0, 1):
        for stage in range(3):
            made.joined(stage, replica, slots=1, window=1)
    for name in "abc":
        made.open(Ask(name=name), 0)
    assert (made.route("a")[0], made.route("c")) == (0, {0: 0})
    actions = made.left(1, 0, "it died", 1)
    assert ("Ended", "a") in kinds(actions)
    assert made.route("c") == {0: 1}
    actions = made.left(0, 0, "it died", 1)
    assert ("Begin", "c") not in kinds(actions)
    for stage in (0, 1):
        made.joined(stage, 0, slots=1, window=1)
    assert kinds(made.open(Ask(name="d"), 2)) == [("Begin", "d")]
    assert made.route("d")[0] == made.route("d")[1] == 0
