"""How two plans differ, and how two files do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stagemesh.config.document import Document, Source, read_yaml
from stagemesh.config.launch import LaunchOptions
from stagemesh.plan.diff import Difference, compared, differences, differences_text, leaves, shown
from stagemesh.plan.diff_files import file_differences
from stagemesh.plan.sessions import SessionPlan
from stagemesh.plan.values import BindingPlan, MemoryPlan, Plan, ValuePlan, WeightTransferPlan
from stagemesh.spec.origin import Layer
from stagemesh.spec.patterns import Policy
from tests.plan.making import Said, axis, pipeline, planned, request, stage

TWO = pipeline(stage(0, "thinker"), stage(1, "talker"))


def plan_of(**said: Said) -> Plan:
    """A plan of two stages."""
    return planned(request(TWO, said))


def told(before: Plan, after: Plan) -> list[tuple[str, str, str, str]]:
    """Every difference as a row."""
    found = differences(before, after)
    return [(each.where, each.what, shown(each.before), shown(each.after)) for each in found]


def test_a_plan_equals_itself_wherever_its_values_come_from() -> None:
    """Places are no difference."""
    plan = plan_of(thinker=Said(axes=[axis("tp", 2)]))
    moved = replace(plan, values={"x": ValuePlan(value=1, layer="deploy", origin="there")})
    assert differences(plan, moved) == ()


def test_what_follows_from_an_axis_is_told() -> None:
    """Ranks, devices, routing, and what cannot run any more."""
    before = plan_of()
    after = plan_of(
        thinker=Said(axes=[axis("pp", 2), axis("stage_replica", 2, Policy.RANDOM)]),
    )
    assert told(before, after) == [
        ("pipeline", "devices", "2 cpu", "5 cpu"),
        ("pipeline", "cannot run", "-", "`thinker`: engine `toy` does not execute `pp` yet"),
        (
            "pipeline",
            "not checked",
            "-",
            "`pp` of `thinker`: the checkpoint does not give the number of layers",
        ),
        ("thinker", "axes", "-", "pp=2 stage_replica=2"),
        ("thinker", "ranks x replicas", "1 x 1", "2 x 2"),
        ("thinker", "devices", "0", "0,1 | 2,3"),
        ("thinker", "policy", "round_robin", "random"),
        ("thinker", "setup.executor", "uni", "mp"),
        ("thinker", "routing of pp", "-", "PipelineMicrobatch(1) -> StitchPipeline"),
        ("thinker", "routing of stage_replica", "-", "RouteByStage(random) -> FanInByStage"),
        ("talker", "devices", "1", "4"),
    ]


def test_a_reason_that_is_gone_is_told_too() -> None:
    """On the side that has it."""
    plan = plan_of()
    blocked = replace(plan, not_runnable=("a", "b"))
    assert told(blocked, replace(plan, not_runnable=("b",))) == [
        ("pipeline", "cannot run", "a", "-")
    ]


def test_stages_are_matched_by_name() -> None:
    """One that only one side has is told part by part; numbers may change."""
    both = plan_of()
    alone = planned(request(pipeline(stage(0, "talker"))))
    places = [where for where, *_ in told(both, alone)]
    assert "thinker" in places
    assert "thinker -> talker" in places
    assert ("thinker", "engine", "toy", "-") in told(both, alone)
    assert ("talker", "input", "0", "-") in told(both, alone)


def test_arguments_options_memory_and_hooks_are_compared() -> None:
    """Down to the members of mappings."""
    plan = plan_of(thinker=Said(axes=[axis("stage_pp", None, unit="requests")]))
    thinker, talker = plan.stages
    bound = BindingPlan(kind="hook", name="cut", target="b.*", category="x", priority=0, axis="tp")
    changed = replace(
        thinker,
        engine_args={"max_num_seqs": 9},
        stage_args={"hf_overrides": {"a": {"b": 1}}},
        model_args={"pitch": 2.0},
        sampling={"top_k": 5},
        env={"COLOUR": "red"},
        memory=MemoryPlan(weights=2**20, cache=0, workspace=0),
        bindings=(bound,),
        axes=(replace(thinker.axes[0], options={"unit": "chunks"}),),
    )
    edge = replace(plan.edges[0], options={"arena_bytes": 1}, chunked=True, bridge="m:f")
    after = replace(plan, stages=(changed, talker), edges=(edge,), async_chunk=True)
    rows = {(where, what): (old, new) for where, what, old, new in told(plan, after)}
    assert rows["thinker", "max_num_seqs"] == ("8", "9")
    assert rows["thinker", "hf_overrides.a.b"] == ("-", "1")
    assert rows["thinker", "additional_config.pitch"] == ("-", "2.0")
    assert rows["thinker", "default_sampling_params.top_k"] == ("-", "5")
    assert rows["thinker", "env.COLOUR"] == ("-", "red")
    assert rows["thinker", "memory of a rank"] == ("-", "1 MiB")
    assert rows["thinker", "hook of b.*"] == ("-", "cut (tp)")
    assert rows["thinker", "stage_pp.unit"] == ("requests", "chunks")
    assert rows["thinker -> talker", "arena_bytes"][1] == "1"
    assert rows["thinker -> talker", "handover"] == ("whole", "by chunk")
    assert rows["thinker -> talker", "bridge"] == ("-", "m:f")
    assert rows["pipeline", "async_chunk"] == ("false", "true")


def test_devices_and_checkpoint_are_compared() -> None:
    """They decide what a plan is worth."""
    plan = plan_of()
    devices = replace(plan.devices, kind="H200", imaginary=True, memory_bytes=2**30)
    checkpoint = replace(plan.checkpoint, path="/other", config_hash="0123456789abcdef")
    assert told(plan, replace(plan, devices=devices, checkpoint=checkpoint)) == [
        ("pipeline", "checkpoint", "/models/toy", "/other"),
        ("pipeline", "configuration", "abc", "0123456789ab"),
        ("pipeline", "devices", "2 cpu", "2 imaginary H200"),
        ("pipeline", "device memory", "-", "1 GiB"),
    ]


def test_a_secret_is_never_shown() -> None:
    """That it changed is; what is absent stays so."""
    old, new = {"env.HF_TOKEN": "one", "x.api_key": "1"}, {"env.HF_TOKEN": "two"}
    assert list(compared("thinker", old, new)) == [
        Difference(
            where="thinker", what="env.HF_TOKEN", before="*** (before)", after="*** (after)"
        ),
        Difference(where="thinker", what="x.api_key", before="*** (before)"),
    ]


def test_leaves_are_what_is_no_mapping() -> None:
    """An empty one stands for itself."""
    assert dict(leaves("a.", {"b": {"c": 1, "d": {}}, "e": (1, 2)})) == {
        "a.b.c": 1,
        "a.b.d": {},
        "a.e": (1, 2),
    }


def test_data_keeps_types_and_leaves_out_what_is_absent() -> None:
    """Bytes are a number there, where people read a unit."""
    small = plan_of()
    large = replace(
        small, devices=replace(small.devices, memory_bytes=2**30), active_stream_window=3
    )
    assert [each.data for each in differences(small, large)] == [
        {"where": "pipeline", "what": "device memory", "after": 2**30},
        {"where": "pipeline", "what": "active_stream_window", "before": 0, "after": 3},
    ]
    assert [list(each.data)[2:] for each in differences(large, small)] == [
        ["before"],
        ["before", "after"],
    ]


def test_differences_are_shown_by_place() -> None:
    """Below the names of both, with how many there are."""
    text = differences_text(
        [
            Difference(where="thinker", what="axes", after="tp=2"),
            Difference(where="thinker", what="devices", before="0", after="0,1"),
            Difference(where="talker", what="policy", before="random", after="round_robin"),
        ],
        ("a.json", "b.json"),
        30,
    )
    assert (
        text
        == """\
--- a.json
+++ b.json

thinker
  axes     - => tp=2
  devices  0 => 0,1

talker
  policy
    random => round_robin

3 differences in 2 places
"""
    )
    assert differences_text([], ("a.json", "b.json")) == "a.json and b.json say the same\n"


def read(text: str) -> Document:
    """A file."""
    document = read_yaml(text, Source(name="f.yaml", layer=Layer.DEPLOY), [])
    assert document is not None
    return document


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a: 1\nb: {c: 2, d: 3}", "b:\n  d: 3\n  c: 2\na: 1"),
        (
            "stages: [{stage_id: 0, x: 1}, {stage_id: 1}]",
            "stages:\n  - {stage_id: 1}\n  - {x: 1, stage_id: 0}",
        ),
        (
            "strategies: {t: [{axis: tp, size: 2}, {axis: dp, size: 2}]}",
            "strategies: {t: [{axis: dp, size: 2}, {axis: tp, size: 2}]}",
        ),
    ],
)
def test_order_and_spacing_are_no_difference(before: str, after: str) -> None:
    """Entries are matched by what they are about."""
    assert file_differences(read(before), read(after)) == ()


def test_files_differ_by_entry_and_value() -> None:
    """Lists of other things are compared by position."""
    before = (
        "async_chunk: true\nstages: [{stage_id: 0, x: 1}]\nlist: [{a: 1}, {a: 2}]\nflat: [1, 2]"
    )
    after = "async_chunk: false\nstages: [{stage_id: 0, x: 2}]\nlist: [{a: 1}]\nflat: [1, 3]"
    found = file_differences(read(before), read(after))
    assert [(each.where, each.what, shown(each.before), shown(each.after)) for each in found] == [
        ("file", "async_chunk", "true", "false"),
        ("file", "flat", "1,2", "1,3"),
        ("stages.0", "x", "1", "2"),
        ("list.1", "a", "2", "-"),
    ]


def test_everything_that_a_plan_decides_is_compared() -> None:
    """Edges with their limits, sessions, and what is said of the start."""
    before = plan_of()
    [edge] = before.edges
    after = replace(
        before,
        active_stream_window=4,
        cuda_mps=True,
        session=SessionPlan(mode="duplex"),
        launch=LaunchOptions(init_timeout=9),
        weight_transfer=WeightTransferPlan(backend="nccl", options={"port": 1}),
        edges=(replace(edge, max_inflight=3, model_options={"codec_chunk_frames": 7}),),
    )
    assert told(before, after) == [
        ("pipeline", "active_stream_window", "0", "4"),
        ("pipeline", "cuda_mps", "false", "true"),
        ("pipeline", "session.mode", "turn", "duplex"),
        ("pipeline", "launch.init_timeout", "600", "9"),
        ("pipeline", "weight_transfer.backend", "-", "nccl"),
        ("pipeline", "weight_transfer.options.port", "-", "1"),
        ("thinker -> talker", "max_inflight", "null", "3"),
        ("thinker -> talker", "codec_chunk_frames", "-", "7"),
    ]


def test_an_edge_of_a_stage_that_is_gone_is_named_by_number() -> None:
    """A plan that was edited by hand may say anything."""
    before = plan_of()
    found = told(before, replace(before, stages=()))
    assert ("0 -> 1", "connector", "-", "shared_memory") in found
