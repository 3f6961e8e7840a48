"""Which layouts of one stage are kept for the search over all stages."""

from __future__ import annotations

import pytest

from stagemesh.plan.cost.estimate import StageCost
from stagemesh.plan.cost.speed import StageTime
from stagemesh.plan.fit.candidates import Candidate
from stagemesh.plan.fit.select import lightest, worthwhile
from stagemesh.spec.engine import MemoryEstimate


def candidate(
    world: int, latency: float | None, busy: float = 1.0, name: str = "tp", memory: int = 0
) -> Candidate:
    """A layout of so many ranks."""
    return Candidate(
        sizes={name: world},
        world=world,
        num_replicas=1,
        cost=StageCost(memory=MemoryEstimate(weights=memory, cache=0, workspace=0)),
        time=None if latency is None else StageTime(latency=latency, busy=busy),
    )


def worlds(found: list[Candidate]) -> list[int]:
    """Ranks of each."""
    return [each.world for each in found]


@pytest.mark.parametrize("by_latency", [True, False])
def test_few_layouts_are_all_kept_but_those_that_fewer_ranks_beat(*, by_latency: bool) -> None:
    """Three ranks that are no better than two are no use."""
    given = [candidate(1, 8), candidate(2, 4), candidate(3, 4), candidate(4, 2, name="cp")]
    assert worlds(worthwhile(given, 10, by_latency=by_latency)) == [1, 2, 4]


def test_short_answers_take_steps_that_are_worth_it() -> None:
    """The smallest, and the largest of those that are a fifth faster than the step before."""
    given = [candidate(world, 16 / world) for world in range(1, 17)]
    assert worlds(worthwhile(given, 4, by_latency=True)) == [1, 8, 11, 14]


def test_many_answers_take_those_that_make_most_of_their_ranks() -> None:
    """By the seconds of all devices that a request takes; one for each number of ranks."""
    given = [
        candidate(1, 8, 8),
        candidate(2, 5, 3.5, name="cp"),
        candidate(2, 4, 3),
        candidate(2, 6, 4, name="pp"),
        candidate(4, 3, 2.5),
        candidate(8, 2, 1.1),
    ]
    assert [each.sizes for each in worthwhile(given, 3, by_latency=False)] == [
        {"tp": 2},
        {"tp": 1},
        {"tp": 8},
    ]


def test_a_stage_of_unknown_speed_keeps_what_it_has() -> None:
    """The first one is the layout that was given."""
    given = [candidate(1, None), candidate(2, 3)]
    assert worthwhile(given, 4, by_latency=True) == given[:1]
    assert worthwhile([], 4, by_latency=True) == []


def test_the_lightest_of_each_number_of_ranks_is_kept() -> None:
    """However fast it is."""
    given = [
        candidate(1, 1, memory=9),
        candidate(2, 1, memory=7),
        candidate(2, 5, memory=5, name="hsdp"),
        candidate(3, 1, memory=4),
    ]
    assert [each.sizes for each in lightest(given, 2)] == [{"tp": 1}, {"hsdp": 2}]
