"""Groups of replicas and the frontends that own them: rules, formulas, documented examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.plan.rules.frontends import capacity, frontends_of, owner, quota
from stagemesh.plan.sessions import FrontendPlan
from stagemesh.spec.duplex import DuplexModel
from tests.plan.rules.toys import MIXED, TWO, Toy, listed

MODEL: Final = replace(
    TWO,
    duplex=DuplexModel(
        plugin="nowhere:plugin", supports_session_resume=False, supports_concurrent_sessions=True
    ),
)

Replicas = tuple[int, ...]


def deploy(
    counts: Replicas, groups: Sequence[object] | None = None, **section: object
) -> dict[str, object]:
    """A deploy file with so many replicas of each stage, and sessions in groups of them."""
    given_groups = {} if groups is None else {"replica_groups": groups}
    return {
        "session_mode": "duplex",
        "duplex_session": {
            "replica_policy": "least_sessions",
            "max_sessions_per_replica": 2,
            **section,
            **given_groups,
        },
        **listed(*({"num_replicas": count} for count in counts)),
    }


def pair(first: int, second: int) -> dict[str, int]:
    """A group of two stages."""
    return {"0": first, "1": second}


@pytest.fixture
def toy(toy: Toy) -> Toy:
    """Two stages with full-duplex sessions."""
    return replace(toy, model=MODEL)


def test_unequal_replicas_need_groups_and_get_an_example(toy: Toy) -> None:
    """The help can be pasted, and then it is taken."""
    found = toy.one(deploy((2, 1)))
    assert found.code == "PL075"
    assert found.message == "stages with different numbers of replicas need `replica_groups`"
    assert found.help == (
        "`s0` has `2`, `s1` has `1`;"
        " write for example `replica_groups: [{0: 0, 1: 0}, {0: 1, 1: 0}]`"
    )
    plan = toy.plan(deploy((2, 1), [pair(0, 0), pair(1, 0)]))
    assert plan.session.duplex is not None
    assert [group.replicas for group in plan.session.duplex.groups] == [(0, 0), (1, 0)]
    toy.keeps(plan)


def test_an_example_of_many_groups_is_cut(toy: Toy) -> None:
    """Five are more than a line holds."""
    assert str(toy.one(deploy((5, 1))).help).endswith("{0: 3, 1: 0}, ...]`")


@pytest.mark.parametrize(
    ("counts", "groups", "expected"),
    [
        ((1, 1), [{"0": 0}], ["PL076: group `0` of `replica_groups` names no replica of `s1`"]),
        (
            (1, 1),
            [{}],
            [
                "PL076: group `0` of `replica_groups` names no replica of `s0`",
                "PL076: group `0` of `replica_groups` names no replica of `s1`",
            ],
        ),
        (
            (1, 1),
            [{"0": 0, "1": 0, "7": 0}],
            ["PL076: group `0` of `replica_groups` names stage `7`, which is none"],
        ),
        (
            (2, 1),
            [pair(0, 0), pair(2, 0)],
            ["PL077: group `1` of `replica_groups` names replica `2`, and `s0` has `2`"],
        ),
        (
            (2, 2),
            [pair(0, 0), pair(1, 1), pair(0, 0)],
            ["PL078: groups `0` and `2` of `replica_groups` are the same"],
        ),
        ((2, 2), [pair(0, 0), pair(0, 1)], ["PL079: replica `1` of `s0` is in no group"]),
        (
            (1, 1),
            [],
            [
                "PL079: replica `0` of `s0` is in no group",
                "PL079: replica `0` of `s1` is in no group",
            ],
        ),
    ],
)
def test_groups_name_every_stage_and_every_replica(
    toy: Toy, counts: Replicas, groups: list[object], expected: list[str]
) -> None:
    """Each fault has its own message."""
    assert toy.found(deploy(counts, groups)) == expected


@pytest.mark.parametrize(
    "group", [{"0": -1, "1": 0}, {"0": True, "1": 0}, {"-1": 0, "0": 0}, {"0": "0", "1": 0}]
)
def test_ids_of_stages_and_replicas_are_whole_numbers(toy: Toy, group: object) -> None:
    """No negative ones, no booleans, no text for a replica."""
    [found] = toy.found(deploy((1, 1), [group]))
    assert found.startswith(("CF012", "CF013"))


def test_a_stage_is_named_once_in_a_group(toy: Toy) -> None:
    """`0` and `"0"` are two keys of YAML and one stage."""
    (toy.folder / "both.yaml").write_text(
        "session_mode: duplex\nduplex_session:\n  replica_policy: least_sessions\n"
        '  max_sessions_per_replica: 1\n  replica_groups: [{0: 0, "0": 0, 1: 0}]\n',
        encoding="utf-8",
    )
    found = toy.found({"base_config": "both.yaml"})
    assert found == ["PL076: group `0` of `replica_groups` names a stage twice"]


@pytest.mark.parametrize(
    ("model", "section", "expected"),
    [
        (
            {},
            {"replica_policy": "legacy", "max_sessions_per_replica": None},
            ["PL080: `2` frontends need `replica_policy: least_sessions`"],
        ),
        (
            {"supports_session_resume": True},
            {},
            ["PL081: `2` frontends cannot serve `toy`, whose sessions can be resumed"],
        ),
    ],
)
def test_several_frontends_need_groups_and_sessions_that_end(
    toy: Toy, model: dict[str, Any], section: dict[str, Any], expected: list[str]
) -> None:
    """With one frontend the same file is right."""
    assert MODEL.duplex is not None
    model_of = replace(MODEL, duplex=replace(MODEL.duplex, **model))
    toy = replace(toy, model=model_of, frontends=2)
    assert toy.found(deploy((2, 2), **section)) == expected
    assert replace(toy, frontends=1).found(deploy((2, 2), **section)) == []


def test_frontends_are_no_more_than_groups(toy: Toy) -> None:
    """Each owns one at least."""
    toy = replace(toy, frontends=3)
    assert toy.found(deploy((2, 2))) == [
        "PL082: `3` frontends are more than the `2` groups of replicas"
    ]


def test_groups_that_share_a_replica_have_one_frontend(toy: Toy) -> None:
    """Its one counter cannot be in two processes; the order of groups decides."""
    toy = replace(toy, frontends=2)
    shared = [pair(0, 0), pair(1, 0), pair(2, 1), pair(3, 1)]
    [found] = toy.found(deploy((4, 2), shared))
    assert (
        found == "PL083: groups `0` and `1` share replica `0` of stage `1` and have two frontends"
    )
    ordered = [pair(0, 0), pair(2, 1), pair(1, 0), pair(3, 1)]
    plan = toy.plan(deploy((4, 2), ordered, max_sessions=4))
    assert plan.session.duplex is not None
    assert plan.session.duplex.frontends == (
        FrontendPlan(groups=(0, 2), quota=2, capacity=2),
        FrontendPlan(groups=(1, 3), quota=2, capacity=2),
    )
    assert [group.frontend for group in plan.session.duplex.groups] == [0, 1, 0, 1]
    toy.keeps(plan)


@pytest.mark.parametrize(
    ("name", "value"),
    [("stage_id", "0"), ("omni_master_address", "10.0.0.1"), ("worker_backend", "ray")],
)
def test_groups_of_replicas_are_on_one_host(toy: Toy, name: str, value: object) -> None:
    """Other starts would not see their counters; with `legacy` nothing is counted."""
    options = {"omni_master_address": "10.0.0.1", "omni_master_port": 5000, name: value}
    toy = replace(toy, launch=options if name != "worker_backend" else {name: value})
    [found] = toy.found(deploy((2, 2)))
    assert found == "PL109: `replica_policy: least_sessions` needs all stages in one start"
    legacy = deploy((2, 2), replica_policy="legacy", max_sessions_per_replica=None)
    assert toy.found(legacy) == []


def test_t64_several_frontends_serve_no_diffusion_stage(toy: Toy) -> None:
    """Whatever its sessions are."""
    toy = replace(toy, model=MIXED, frontends=2)
    found = toy.one({})
    assert (found.code, str(found.origin)) == ("PL085", "--api-server-count")
    assert found.message == "`2` frontends cannot serve the diffusion stage `s1`"


def test_t64_several_frontends_serve_no_stage_that_sleeps(toy: Toy) -> None:
    """Every such stage is named; others are planned, and not run yet."""
    toy = replace(toy, model=TWO, frontends=2)
    found = toy.one(listed({"enable_sleep_mode": True}, {"enable_sleep_mode": True}))
    assert found.message == "`2` frontends cannot serve stages with `enable_sleep_mode`"
    assert [note.message for note in found.notes] == ["`s0` has it", "`s1` has it"]
    plan = toy.plan(listed({"enable_sleep_mode": False}))
    assert plan.not_runnable == (
        "several frontends divide full-duplex sessions, and here requests take turns",
    )
    toy.keeps(plan)


def test_frontends_without_sessions_are_warned_of(toy: Toy) -> None:
    """They answer, and accept nothing."""
    toy = replace(toy, frontends=3)
    assert toy.found(deploy((3, 3), max_sessions=2)) == [
        "PL084?: `1` of `3` frontends accept no session"
    ]


@pytest.mark.parametrize(
    ("sessions", "frontends", "groups", "per_replica", "quotas", "held"),
    [
        (64, 4, 8, 8, [16] * 4, [16] * 4),
        (10, 4, 4, 2, [3, 3, 2, 2], [2, 2, 2, 2]),
        (5, 3, 3, 9, [2, 2, 1], [2, 2, 1]),
        (2, 4, 4, 9, [1, 1, 0, 0], [1, 1, 0, 0]),
        (100, 2, 2, 8, [50, 50], [8, 8]),
    ],
)
def test_documented_examples_of_budgets(
    sessions: int, frontends: int, groups: int, per_replica: int, quotas: list[int], held: list[int]
) -> None:
    """64 sessions on 8 replicas of 8 for 4 frontends are 16 each, and so on."""
    placed = [(group, group) for group in range(groups)]
    divided = frontends_of(placed, sessions, per_replica, frontends)
    assert [frontend.quota for frontend in divided] == quotas
    assert [frontend.capacity for frontend in divided] == held


@given(sessions=st.integers(1, 10**6), frontends=st.integers(1, 64))
def test_quotas_divide_all_sessions_evenly(sessions: int, frontends: int) -> None:
    """They add up, differ by one at most, and never grow along the frontends."""
    quotas = [quota(frontend, sessions, frontends) for frontend in range(frontends)]
    assert sum(quotas) == sessions
    assert max(quotas) - min(quotas) <= 1
    assert quotas == sorted(quotas, reverse=True)


@given(data=st.data(), frontends=st.integers(1, 8), per_replica=st.integers(1, 9))
def test_every_group_has_one_owner_and_no_frontend_holds_more_than_its_replicas(
    data: st.DataObject, frontends: int, per_replica: int
) -> None:
    """Ownership is a partition; capacity is bounded by every stage of it."""
    group = st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
    groups = data.draw(st.lists(group, min_size=frontends, max_size=20))
    sessions = data.draw(st.integers(1, 200))
    divided = frontends_of(groups, sessions, per_replica, frontends)
    assert sorted(each for front in divided for each in front.groups) == list(range(len(groups)))
    for number, front in enumerate(divided):
        assert all(owner(each, frontends) == number for each in front.groups)
        owned = [groups[each] for each in front.groups]
        for of_stage in zip(*owned, strict=True):
            assert front.capacity <= per_replica * len(set(of_stage))
        assert front.capacity <= front.quota
        assert front.capacity == capacity(owned, front.quota, per_replica)


def test_nothing_is_held_without_groups() -> None:
    """A frontend that owns none has no replica to place in."""
    assert capacity([], 7, 3) == 0
