"""`session_mode` and `duplex_session`: what is taken, what is refused, what the plan shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from stagemesh.plan.render import plan_text
from stagemesh.plan.sessions import DuplexPlan, FrontendPlan, GroupPlan
from stagemesh.spec.duplex import DuplexModel
from tests.plan.rules.toys import MIXED, TWO, Toy, listed

MODEL: Final = DuplexModel(plugin="nowhere:plugin")
DUPLEX: Final = replace(TWO, duplex=MODEL)
ABLE: Final = replace(TWO, duplex=replace(MODEL, supports_concurrent_sessions=True))


def spoken(**section: object) -> dict[str, object]:
    """A deploy file for full-duplex sessions."""
    return {"session_mode": "duplex", "duplex_session": section}


def replicas(*counts: int) -> dict[str, object]:
    """A deploy file with so many replicas of each stage."""
    return listed(*({"num_replicas": count} for count in counts))


def duplex_of(toy: Toy, *deploys: Mapping[str, object]) -> DuplexPlan:
    """Plan full-duplex sessions."""
    found = toy.plan(*deploys).session.duplex
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("default", "deploy", "mode"),
    [
        ("turn", {}, "turn"),
        ("duplex", {}, "duplex"),
        ("turn", {"session_mode": "duplex"}, "duplex"),
        ("duplex", {"session_mode": "turn"}, "turn"),
        ("duplex", {"session_mode": None}, "duplex"),
    ],
)
def test_the_mode_is_what_was_said_or_the_pipelines_own(
    toy: Toy, default: str, deploy: dict[str, object], mode: str
) -> None:
    """A plan of either kind is opened again as it was saved."""
    model = replace(TWO, duplex=replace(MODEL, default_session_mode=default))
    toy = replace(toy, model=model)
    plan = toy.plan(deploy)
    assert plan.session.mode == mode
    assert (plan.session.duplex is not None) is (mode == "duplex")
    toy.keeps(plan)


def test_duplex_needs_a_pipeline_that_has_it(toy: Toy) -> None:
    """Others say nothing, or `turn`."""
    found = toy.one({"session_mode": "duplex"})
    assert (found.code, found.message) == ("PL070", "`toy` has no full-duplex sessions")
    assert found.origin is not None
    assert found.origin.path == "session_mode"
    assert toy.plan({"session_mode": "turn"}).session.mode == "turn"


def test_a_section_without_effect_is_an_error_unless_the_mode_says_so(toy: Toy) -> None:
    """`session_mode: turn` is how a file with such a section is switched: it warns."""
    section = {"duplex_session": {"max_sessions": 2}}
    message = "`duplex_session` has no effect where sessions take turns"
    assert toy.found(section) == [f"PL071: {message}"]
    assert toy.one(section).help == "`toy` has no full-duplex sessions: leave the section out"
    turned = {**section, "session_mode": "turn"}
    assert toy.found(turned) == [f"PL071?: {message}"]
    toy = replace(toy, model=DUPLEX)
    by_turns = DUPLEX.duplex and replace(DUPLEX.duplex, default_session_mode="turn")
    able = replace(toy, model=replace(DUPLEX, duplex=by_turns))
    assert able.one(section).help == "write `session_mode: duplex`, or leave the section out"
    plan = toy.plan(spoken(max_sessions=2), {"session_mode": "turn"})
    assert plan.session.duplex is None
    toy.keeps(plan)


def test_t44_defaults_of_the_section(toy: Toy) -> None:
    """What is not said has the documented default, and the plan holds all of it."""
    toy = replace(toy, model=DUPLEX)
    assert duplex_of(toy, {"session_mode": "duplex"}) == DuplexPlan(
        replica_policy="legacy",
        max_sessions=1,
        max_sessions_per_replica=None,
        groups=(),
        frontends=(FrontendPlan(groups=(), quota=1, capacity=1),),
        idle_ttl_s=300.0,
        disconnect_grace_s=30.0,
        reaper_interval_s=5.0,
        resume_replay_ttl_s=60.0,
        resume_replay_max_bytes_per_session=8 * 2**20,
        max_pending_input_bytes_per_session=16 * 2**20,
        max_pending_turns_per_session=4,
        completed_append_cache_size=256,
        server_vad_model_path=None,
        warmup_frames=0,
        can_resume=True,
    )


@pytest.mark.parametrize(
    "name",
    [
        "idle_ttl_s",
        "disconnect_grace_s",
        "reaper_interval_s",
        "resume_replay_ttl_s",
        "resume_replay_max_bytes_per_session",
        "max_pending_input_bytes_per_session",
        "max_pending_turns_per_session",
        "max_sessions",
        "max_sessions_per_replica",
    ],
)
@pytest.mark.parametrize("value", [0, -1])
def test_t44_numbers_must_be_positive(toy: Toy, name: str, value: int) -> None:
    """Zero and less are refused, with the name of the field."""
    [found] = replace(toy, model=DUPLEX).found(spoken(**{name: value}))
    assert re.fullmatch(
        rf"CF013: `(duplex|…lex)_session\.{name}` must be `>= .*, got `{value}(\.0)?`", found
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("server_vad_model_path", "", "must be like `/models/vad`, got ``"),
        ("max_sessions", True, "must be a whole number, got `true`"),
        ("max_sessions_per_replica", 1.5, "must be a whole number, got `1.5`"),
        ("replica_policy", "least", "does not take `least`"),
    ],
)
def test_t44_values_of_another_kind_are_refused(
    toy: Toy, name: str, value: object, message: str
) -> None:
    """An empty path of a model is none; a boolean is no number."""
    [found] = replace(toy, model=DUPLEX).found(spoken(**{name: value}))
    assert found.endswith(f"`duplex_session.{name}` {message}")


def test_t44_sessions_may_live_for_ever(toy: Toy) -> None:
    """`null` is a value of `idle_ttl_s`, also after saving."""
    toy = replace(toy, model=DUPLEX)
    plan = toy.plan(spoken(idle_ttl_s=None, warmup_frames=-1, server_vad_model_path="/vad"))
    assert plan.session.duplex is not None
    assert plan.session.duplex.idle_ttl_s is None
    toy.keeps(plan)


def test_p54_limits_of_a_base_hold_and_are_in_the_plan(toy: Toy) -> None:
    """An overlay that says nothing, or something else, changes nothing about them."""
    toy = replace(toy, model=DUPLEX)
    base = spoken(max_sessions=4)
    assert duplex_of(toy, base, {}).max_sessions == 4
    other = {"duplex_session": {"reaper_interval_s": 9}}
    assert duplex_of(toy, base, other).max_sessions == 4


def test_workers_are_told_how_many_sessions_to_be_ready_for(toy: Toy) -> None:
    """All of them under `legacy`, those of one replica under `least_sessions`."""
    toy = replace(toy, model=ABLE)
    assert duplex_of(toy, spoken(max_sessions=7)).worker_sessions == 7
    section = {"max_sessions": 7, "replica_policy": "least_sessions", "max_sessions_per_replica": 3}
    assert duplex_of(toy, spoken(**section)).worker_sessions == 3


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (
            {"replica_policy": "least_sessions"},
            "PL072: `replica_policy: least_sessions` needs `max_sessions_per_replica`",
        ),
        (
            {"replica_policy": "least_sessions", "max_sessions_per_replica": 2},
            "PL073: a replica of `toy` holds one session, not `2`",
        ),
        (
            {"max_sessions_per_replica": 1},
            (
                "PL074: `duplex_session.max_sessions_per_replica` has no effect under"
                " `replica_policy: legacy`"
            ),
        ),
        (
            {"replica_groups": [{"0": 0, "1": 0}]},
            "PL074: `duplex_session.replica_groups` has no effect under `replica_policy: legacy`",
        ),
    ],
)
def test_the_policy_decides_what_is_needed(
    toy: Toy, section: dict[str, object], expected: str
) -> None:
    """What it needs is missing, or what it ignores is there."""
    assert replace(toy, model=DUPLEX).found(spoken(**section)) == [expected]


def test_equal_replicas_make_groups_by_themselves(toy: Toy) -> None:
    """Group g is replica g of every stage; the documented example of two stages."""
    toy = replace(toy, model=ABLE, devices=4)
    section = {"max_sessions": 4, "replica_policy": "least_sessions", "max_sessions_per_replica": 2}
    placed = listed({"num_replicas": 2, "devices": "0,1"}, {"num_replicas": 2, "devices": "2,3"})
    plan = toy.plan({**spoken(**section), **placed})
    assert plan.session.duplex is not None
    assert plan.session.duplex.groups == (
        GroupPlan(replicas=(0, 0), frontend=0),
        GroupPlan(replicas=(1, 1), frontend=0),
    )
    assert plan.session.duplex.frontends == (FrontendPlan(groups=(0, 1), quota=4, capacity=4),)
    toy.keeps(plan)
    assert "duplex least_sessions: 4 sessions, 2 a replica\n" in plan_text(plan)
    assert "group 1: s0[1] s1[1], frontend 0\n" in plan_text(plan)


def test_sessions_without_groups_are_shown_too(toy: Toy) -> None:
    """One frontend holds them all."""
    text = plan_text(replace(toy, model=DUPLEX).plan(spoken(max_sessions=3)))
    assert "duplex legacy: 3 sessions\n" in text
    assert "frontend 0: quota 3, holds 3\n" in text


def test_sessions_run_on_engines_that_keep_them(toy: Toy) -> None:
    """Every other one is named, and so is what nothing does around sessions."""
    assert replace(toy, model=DUPLEX).plan(spoken(warmup_frames=-1)).not_runnable == ()
    plan = replace(toy, model=replace(MIXED, duplex=MODEL)).plan(
        spoken(warmup_frames=1, server_vad_model_path="/vad"), listed({}, {"engine": "picture"})
    )
    assert plan.not_runnable == (
        "`s1`: engine `picture` keeps no sessions yet",
        "nothing finds out yet where speech begins and ends (`server_vad_model_path`)",
        "nothing warms replicas up before the first session yet (`warmup_frames`)",
    )
