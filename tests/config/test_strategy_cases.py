"""Telling cases of strategies, T1 to T25 and T60, T61: what each comes to here.

The numbers are those of the list of cases; where other systems differ, the outcome is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from stagemesh.plan.save import to_json
from tests.config.cases import codes, planned_from, shape, stage_of

Said: TypeAlias = Mapping[str, object]

TP2: Final = [{"axis": "tp", "size": 2}]
TWICE: Final = [{"axis": "stage_replica", "size": 2, "routing": "round_robin"}]


def entry(axis: str, size: int, **more: object) -> dict[str, object]:
    """One entry of a stack."""
    return {"axis": axis, "size": size, **more}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is said, and what comes of it: the shape of a stage, or codes."""

    strategy: Said
    """Stacks by stage."""
    deploy: Mapping[str, Said] = field(default_factory=dict)
    """Fields of the deploy file by stage."""
    typed: Said = field(default_factory=dict)
    """Overrides by stage."""
    model: str = "speech"
    """The model."""
    stage: str = "thinker"
    """The stage that is looked at."""
    world: int = 1
    """Its ranks."""
    replicas: int = 1
    """Its copies."""
    axes: Mapping[str, int] = field(default_factory=dict)
    """Its axes."""
    errors: tuple[str, ...] = ()
    """Codes, when there is no plan."""
    warnings: tuple[str, ...] = ()
    """Codes beside a plan."""


CASES: Final[Mapping[str, Case]] = {
    "T1 an axis is written to its stage": Case(strategy={"thinker": TP2}, world=2, axes={"tp": 2}),
    "T1 and to no other": Case(strategy={"thinker": TP2}, stage="talker"),
    "T2 replicas leave the other axes alone": Case(
        strategy={"talker": TWICE}, stage="talker", replicas=2, axes={"stage_replica": 2}
    ),
    "T3 another size in the deploy file": Case(
        strategy={"thinker": TP2},
        deploy={"thinker": {"tensor_parallel_size": 4}},
        errors=("AX006",),
    ),
    "T3 the same size in the deploy file": Case(
        strategy={"thinker": TP2},
        deploy={"thinker": {"tensor_parallel_size": 2}},
        world=2,
        axes={"tp": 2},
    ),
    "T4 another number of replicas": Case(
        strategy={"thinker": TWICE}, deploy={"thinker": {"num_replicas": 3}}, errors=("AX006",)
    ),
    "T4 ours: an explicit 1 is a value": Case(
        strategy={"thinker": TWICE}, deploy={"thinker": {"num_replicas": 1}}, errors=("AX006",)
    ),
    "T5 as many devices as ranks": Case(
        strategy={"thinker": TP2}, deploy={"thinker": {"devices": "0,1"}}, world=2, axes={"tp": 2}
    ),
    "T5 too many devices": Case(
        strategy={"thinker": TP2}, deploy={"thinker": {"devices": "0,1,2"}}, errors=("PL010",)
    ),
    "T5 a pool for all replicas": Case(
        strategy={"thinker": [*TP2, *TWICE]},
        deploy={"thinker": {"devices": "0,1,2,3"}},
        world=2,
        replicas=2,
        axes={"tp": 2, "stage_replica": 2},
    ),
    "T6 an unknown stage": Case(strategy={"thinkr": TP2}, errors=("CF020",)),
    "T7 ours: a policy for each stage": Case(
        strategy={
            "thinker": [entry("stage_replica", 2, routing="random")],
            "talker": [entry("stage_replica", 2, routing="least_queue")],
        },
        replicas=2,
        axes={"stage_replica": 2},
    ),
    "T8 the deploy file has one device": Case(
        strategy={"thinker": TP2}, deploy={"thinker": {"devices": "0"}}, errors=("PL010",)
    ),
    "T9 ours: typed devices come before the count": Case(
        strategy={"thinker": TP2},
        deploy={"thinker": {"devices": "0"}},
        typed={"0": {"devices": "0,1"}},
        world=2,
        axes={"tp": 2},
    ),
    "T10 replicas on typed devices": Case(
        strategy={"thinker": TWICE},
        deploy={"thinker": {"devices": "0"}},
        typed={"0": {"devices": "0,1"}},
        replicas=2,
        axes={"stage_replica": 2},
    ),
    "T11 a wrong number of typed devices": Case(
        strategy={"talker": TWICE}, typed={"talker": {"devices": "0,1,2"}}, errors=("PL010",)
    ),
    "T12 typed replicas win with a warning": Case(
        strategy={"thinker": TWICE},
        typed={"thinker": {"num_replicas": 3}},
        replicas=3,
        axes={"stage_replica": 3},
        warnings=("AX007",),
    ),
    "T13 ours: a typed dp wins, then devices are counted": Case(
        strategy={"thinker": [entry("dp", 2)]},
        deploy={"thinker": {"devices": "0,1"}},
        typed={"thinker": {"data_parallel_size": 4}},
        errors=("AX007", "PL010"),
    ),
    "T14 a typed tp of 1 leaves a device over": Case(
        strategy={"thinker": TP2},
        deploy={"thinker": {"devices": "0,1"}},
        typed={"thinker": {"tensor_parallel_size": 1}},
        errors=("AX007", "PL010"),
    ),
    "T15 tp x dp is the world": Case(
        strategy={"thinker": [*TP2, entry("dp", 2), *TWICE, entry("ep", 4)]},
        world=4,
        replicas=2,
        axes={"dp": 2, "tp": 2, "ep": 4, "stage_replica": 2},
    ),
    "T16 ep of tp x dp": Case(
        strategy={"thinker": [entry("ep", 2), *TP2]}, world=2, axes={"tp": 2, "ep": 2}
    ),
    "T16 ep of another size": Case(strategy={"thinker": [*TP2, entry("ep", 4)]}, errors=("AX022",)),
    "T16 ours: ep over the tp of the deploy file": Case(
        strategy={"thinker": [entry("ep", 2)]},
        deploy={"thinker": {"tensor_parallel_size": 2}},
        world=2,
        axes={"tp": 2, "ep": 2},
    ),
    "T17 an axis twice": Case(strategy={"thinker": [*TP2, *TP2]}, errors=("AX002",)),
    "T17 ours: sequence axes on a stage that denoises": Case(
        model="picture",
        stage="dit",
        strategy={"dit": [entry("sp_ulysses", 2)]},
        world=2,
        axes={"sp_ulysses": 2},
    ),
    "T17 and on no other": Case(strategy={"thinker": [entry("sp_ulysses", 2)]}, errors=("AX020",)),
    "T18 ours: hash is a policy": Case(
        strategy={"thinker": [entry("stage_replica", 2, routing="hash", key="user")]},
        replicas=2,
        axes={"stage_replica": 2},
    ),
    "T18 an unknown policy of dp": Case(
        strategy={"thinker": [entry("dp", 2, routing="bogus")]}, errors=("AX004",)
    ),
    "T18 an unknown policy of replicas": Case(
        strategy={"thinker": [entry("stage_replica", 2, routing="bogus")]}, errors=("AX004",)
    ),
    "T19 dp is the engine's": Case(
        strategy={"thinker": [entry("dp", 2, l1_owner="delegated")]}, errors=("AX005",)
    ),
    "T19 replicas are the runtime's": Case(
        strategy={"thinker": [entry("stage_replica", 2, l1_owner="engine")]}, errors=("AX005",)
    ),
    "T22 ours: a size is a whole number": Case(
        strategy={"thinker": [entry("tp", 2) | {"size": 2.7}]}, errors=("CF012",)
    ),
    "T23 ours: ulysses of the deploy file counts": Case(
        model="picture",
        stage="dit",
        strategy={"dit": TP2},
        deploy={"dit": {"ulysses_degree": 2, "devices": "0,1"}},
        errors=("PL010",),
    ),
    "T24 ours: a list for one copy counts from 0": Case(
        strategy={"talker": TWICE}, deploy={"talker": {"devices": "1"}}, errors=("PL013",)
    ),
    "T25 ours: a strategy reaches any diffusion model": Case(
        model="picture",
        stage="dit",
        strategy={"dit": [entry("cfg", 2)]},
        world=2,
        axes={"cfg": 2},
    ),
    "T60 typed degrees beat the file": Case(
        model="picture",
        stage="dit",
        strategy={},
        deploy={"dit": {"tensor_parallel_size": 4}},
        typed={"dit": {"tensor_parallel_size": 2, "ulysses_degree": 2}},
        world=4,
        axes={"sp_ulysses": 2, "tp": 2},
    ),
    "T60 ours: a wrong sequence size is an error": Case(
        model="picture",
        stage="dit",
        strategy={},
        deploy={"dit": {"ulysses_degree": 2, "ring_degree": 3, "sequence_parallel_size": 99}},
        errors=("AX041",),
    ),
    "T61 hsdp takes the ranks that are there": Case(
        model="picture",
        stage="dit",
        strategy={},
        deploy={"dit": {"use_hsdp": True, "hsdp_replicate_size": 2, "ulysses_degree": 4}},
        world=4,
        axes={"sp_ulysses": 4, "hsdp": 4},
    ),
    "T61 hsdp with tp": Case(
        model="picture",
        stage="dit",
        strategy={},
        deploy={"dit": {"use_hsdp": True, "tensor_parallel_size": 2}},
        errors=("AX021",),
    ),
    "T61 hsdp with dp": Case(
        model="picture",
        stage="dit",
        strategy={},
        deploy={"dit": {"use_hsdp": True, "data_parallel_size": 2}},
        errors=("AX021",),
    ),
    "T61 ours: gathered keys and values compose with ulysses (P66)": Case(
        model="picture",
        stage="dit",
        strategy={},
        deploy={"dit": {"ulysses_degree": 2, "allgather_degree": 2}},
        world=4,
        axes={"sp_ring": 2, "sp_ulysses": 2},
    ),
    "T61 gathered and passed round": Case(
        model="picture",
        stage="dit",
        strategy={},
        deploy={"dit": {"ring_degree": 2, "allgather_degree": 2}},
        errors=("AX011",),
    ),
    "T61 four branches of guidance": Case(
        model="picture",
        stage="dit",
        strategy={},
        deploy={"dit": {"cfg_parallel_size": 4}},
        world=4,
        axes={"cfg": 4},
    ),
    "T61 parts of a picture bring no ranks": Case(
        model="picture",
        stage="dit",
        strategy={},
        deploy={"dit": {"ulysses_degree": 4, "vae_patch_parallel_size": 2}},
        world=4,
        axes={"sp_ulysses": 4, "vae_pp": 2},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_case_comes_to_what_was_decided(case: Case, tmp_path: Path) -> None:
    """The shape of one stage, or every code that was found."""
    made = planned_from(
        tmp_path,
        case.model,
        strategy=case.strategy,
        deploy=case.deploy,
        overrides=case.typed,
    )
    if case.errors:
        assert codes(made) == list(case.errors)
        assert made.plan is None
        return
    assert made.plan is not None, made.diagnostics
    assert codes(made) == list(case.warnings)
    assert shape(made.plan, case.stage) == (case.world, case.replicas, case.axes)


def test_t7_each_stage_has_its_own_policy(tmp_path: Path) -> None:
    """Also hash, with its key and bound."""
    strategy = {
        "thinker": [entry("stage_replica", 2, routing="least-queue")],
        "talker": [entry("stage_replica", 2, routing="hash", load_bound=2)],
    }
    plan = planned_from(tmp_path, strategy=strategy).plan
    assert plan is not None
    assert [stage.policy for stage in plan.stages] == ["least_queue", "hash", "round_robin"]
    assert stage_of(plan, "talker").axes[0].options == {"key": "request_id", "load_bound": 2.0}
    assert plan.not_runnable == ()


def test_t20_a_policy_is_no_argument_of_an_engine(tmp_path: Path) -> None:
    """It is a fact of the stage, beside the engine."""
    plan = planned_from(tmp_path, strategy={"thinker": TWICE}).plan
    assert plan is not None
    assert "round_robin" not in str(stage_of(plan, "thinker").engine_args)
    assert '"policy": "round_robin"' in to_json(plan)


def test_t61_hsdp_says_how_large_its_shards_are(tmp_path: Path) -> None:
    """Four ranks in two copies: shards of two."""
    fields = {"use_hsdp": True, "hsdp_replicate_size": 2, "ulysses_degree": 4}
    plan = planned_from(tmp_path, "picture", deploy={"dit": fields}).plan
    assert plan is not None
    hsdp = next(axis for axis in plan.stages[0].axes if axis.axis == "hsdp")
    assert hsdp.options == {"shard": 2, "replicate": 2}
    assert hsdp.groups == ((0, 1, 2, 3),)


def test_p66_groups_of_ulysses_lie_together_and_those_that_gather_apart(tmp_path: Path) -> None:
    """Chatty axes on neighbouring ranks."""
    fields = {"ulysses_degree": 2, "allgather_degree": 2}
    plan = planned_from(tmp_path, "picture", deploy={"dit": fields}).plan
    assert plan is not None
    groups = {axis.axis: axis.groups for axis in plan.stages[0].axes}
    assert groups == {"sp_ulysses": ((0, 1), (2, 3)), "sp_ring": ((0, 2), (1, 3))}


@pytest.mark.parametrize(
    ("field_name", "value", "path"),
    [
        ("ulysses_degree", 2, "sp_ulysses.size"),
        ("ring_degree", 2, "sp_ring.size"),
        ("cfg_parallel_size", 2, "cfg.size"),
        ("vae_patch_parallel_size", 1, "vae_pp.size"),
        ("use_hsdp", True, "hsdp.size"),
        ("hsdp_shard_size", 2, "hsdp.shard"),
        ("ulysses_mode", "strict", "sp_ulysses.mode"),
        ("vae_parallel_mode", "spatial_shard_width", "vae_pp.mode"),
    ],
)
def test_p03_a_field_of_a_diffusion_stage_is_seen_there_and_refused_elsewhere(
    tmp_path: Path, field_name: str, value: object, path: str
) -> None:
    """It reaches the plan; at a stage of another kind the kind that has it is named."""
    with_switch: Mapping[str, Said] = {
        "hsdp_shard_size": {"use_hsdp": True},
        "use_hsdp": {"hsdp_shard_size": 2},
    }
    said = {field_name: value, **with_switch.get(field_name, {})}
    made = planned_from(tmp_path, "picture", deploy={"dit": said})
    assert made.plan is not None, made.diagnostics
    name, _, member = path.partition(".")
    axis = next(axis for axis in made.plan.stages[0].axes if axis.axis == name)
    shown = axis.size if member == "size" else axis.options[member]
    assert shown == (2 if field_name == "use_hsdp" else value)
    wrong = planned_from(tmp_path, "speech", deploy={"thinker": said})
    (found,) = wrong.diagnostics
    assert found.code == "AX020"
    assert found.message == f"`{name}` does not fit the `llm_ar` stage `thinker`"
    assert found.help == f"`{name}` fits stages of kind `diffusion`"
    assert found.origin is not None
    assert found.origin.path.startswith("stages[0].")
