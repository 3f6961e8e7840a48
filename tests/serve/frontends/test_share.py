"""What of a plan each frontend runs, by the documented budgets and groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.config.launch import LaunchOptions
from stagemesh.plan.save import from_json, to_json
from stagemesh.plan.values import Plan
from stagemesh.runtime.core.duplex import Placed, Sessions
from stagemesh.serve.frontends.share import share_of
from tests.runtime.talking import duplex_plan, talking


def planned(
    groups: Sequence[tuple[int, ...]], sessions: int, cap: int, frontends: int, warmup: int = 0
) -> Plan:
    """A plan whose stages have just the replicas that the groups name."""
    counts = [max(of_stage) + 1 for of_stage in zip(*groups, strict=True)]
    duplex = duplex_plan(
        groups, sessions=sessions, cap=cap, frontends=frontends, warmup_frames=warmup
    )
    return replace(talking(duplex, counts), launch=LaunchOptions(api_server_count=frontends))


def owned(plan: Plan) -> list[list[int]]:
    """Numbers of the replicas of each stage."""
    return [[replica.index for replica in stage.replicas] for stage in plan.stages]


def room_of(plan: Plan, frontend: int) -> int:
    """Sessions that a frontend takes before it refuses one, with all of its replicas."""
    duplex = plan.session.duplex
    assert duplex is not None
    sessions = Sessions(duplex, frontend)
    for position, replicas in enumerate(owned(plan)):
        for replica in replicas:
            sessions.joined(position, replica)
    names = iter(range(10_000))
    while isinstance(sessions.open(str(next(names)), 0.0), Placed):
        pass
    return len(sessions.states)


@pytest.mark.parametrize(
    ("groups", "sessions", "cap", "budgets"),
    [
        ([(one, one) for one in range(8)], 64, 8, [16, 16, 16, 16]),
        ([(one, one) for one in range(3)], 5, 8, [2, 2, 1]),
        ([(one, one) for one in range(4)], 2, 8, [1, 1, 0, 0]),
        ([(0, 0), (1, 1)], 100, 8, [8, 8]),
    ],
)
def test_the_documented_budgets_are_what_each_share_has_room_for(
    groups: Sequence[tuple[int, int]], sessions: int, cap: int, budgets: list[int]
) -> None:
    """Opened one after another until one is refused, on the replicas of the share alone."""
    plan = planned(groups, sessions, cap, len(budgets))
    shares = [share_of(plan, frontend) for frontend in range(len(budgets))]
    assert [room_of(share, frontend) for frontend, share in enumerate(shares)] == budgets


def test_replicas_keep_the_numbers_that_they_have_in_the_plan() -> None:
    """Groups 0 and 2 are the first frontend's, and the others the second one's."""
    plan = planned([(0, 0), (1, 1), (2, 0), (3, 2)], 8, 2, 2)
    assert owned(share_of(plan, 0)) == [[0, 2], [0]]
    assert owned(share_of(plan, 1)) == [[1, 3], [1, 2]]


def test_a_share_is_a_plan_of_one_process_that_can_be_saved() -> None:
    """Stages get the saved form of it."""
    share = share_of(planned([(0, 0), (1, 1)], 8, 2, 2), 1)
    assert share.launch.api_server_count == 1
    assert from_json(to_json(share)) == share


@pytest.mark.parametrize(("warmup", "expected"), [(5, [5, -1]), (0, [0, -1]), (-2, [-2, -2])])
def test_a_frontend_without_sessions_warms_nothing_up(warmup: int, expected: list[int]) -> None:
    """The others do as the plan says."""
    plan = planned([(0, 0), (1, 1)], 1, 2, 2, warmup)
    found = []
    for frontend in range(2):
        duplex = share_of(plan, frontend).session.duplex
        assert duplex is not None
        found.append(duplex.warmup_frames)
    assert found == expected


@given(
    frontends=st.integers(1, 5),
    sizes=st.lists(st.integers(1, 3), min_size=5, max_size=12),
    sessions=st.integers(1, 40),
)
def test_shares_divide_every_replica_among_the_frontends(
    frontends: int, sizes: list[int], sessions: int
) -> None:
    """Each belongs to exactly one; groups of one owner may share some of the last stage."""
    shared = {owner: owner for owner in range(frontends)}
    groups = [
        (number, shared[number % frontends] if size == 1 else frontends + number)
        for number, size in enumerate(sizes)
    ]
    seconds = sorted({second for _, second in groups})
    groups = [(first, seconds.index(second)) for first, second in groups]
    plan = planned(groups, sessions, 2, frontends)
    shares = [owned(share_of(plan, frontend)) for frontend in range(frontends)]
    for stage, whole in enumerate(owned(plan)):
        assert sorted(one for share in shares for one in share[stage]) == whole
