"""What two starts must have in common, and what is their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stagemesh.config.launch import LaunchOptions
from stagemesh.plan.fingerprint import common_values, fingerprint, local_values
from stagemesh.plan.save import from_json, to_json
from stagemesh.plan.values import CheckpointPlan, DevicesPlan, EdgePlan, Plan, StagePlan
from stagemesh.testing.fake_plan import FakeStage, fake_plan

PLAN = fake_plan([FakeStage(name="thinker"), FakeStage(name="talker", final="audio")])
Change = Callable[[Plan], Plan]


def of_stage(change: Callable[[StagePlan], StagePlan]) -> Change:
    """Change the second stage."""
    return lambda plan: replace(plan, stages=(plan.stages[0], change(plan.stages[1])))


def of_edge(change: Callable[[EdgePlan], EdgePlan]) -> Change:
    """Change the edge."""
    return lambda plan: replace(plan, edges=(change(plan.edges[0]),))


COMMON: dict[str, Change] = {
    "pipeline": lambda plan: replace(plan, pipeline="other"),
    "model": lambda plan: replace(plan, checkpoint=CheckpointPlan(path="/x", config_hash="b")),
    "async_chunk": lambda plan: replace(plan, async_chunk=False),
    "one stage fewer": lambda plan: replace(plan, stages=plan.stages[:1], edges=()),
    "stage id": of_stage(lambda stage: replace(stage, stage_id=2)),
    "stage name": of_stage(lambda stage: replace(stage, name="vocoder")),
    "execution type": of_stage(lambda stage: replace(stage, execution_type="diffusion")),
    "inputs": of_stage(lambda stage: replace(stage, input_sources=())),
    "output": of_stage(lambda stage: replace(stage, final_output_type="text")),
    "tokenizer": of_stage(lambda stage: replace(stage, owns_tokenizer=True)),
    "folder of weights": of_stage(lambda stage: replace(stage, model_subdir="talker")),
    "chunks of a stage": of_stage(lambda stage: replace(stage, async_chunk=False)),
    "no edge": lambda plan: replace(plan, edges=()),
    "connector": of_edge(lambda edge: replace(edge, connector="mooncake_store", options={})),
    "connector's option": of_edge(lambda edge: replace(edge, options={"arena_bytes": 1 << 23})),
    "payload": of_edge(lambda edge: replace(edge, payload_type="latent")),
    "bridge": of_edge(lambda edge: replace(edge, bridge="a:b")),
    "chunks of an edge": of_edge(lambda edge: replace(edge, chunked=False)),
    "model's option": of_edge(lambda edge: replace(edge, model_options={"frames": 4})),
    "window": of_edge(lambda edge: replace(edge, window_size=4)),
    "requests in flight": of_edge(lambda edge: replace(edge, max_inflight=4)),
}
LOCAL: dict[str, Change] = {
    "place of the checkpoint": lambda plan: replace(
        plan, checkpoint=CheckpointPlan(path="/elsewhere", config_hash="")
    ),
    "devices": lambda plan: replace(
        plan, devices=DevicesPlan(kind="cuda", count=1, memory_bytes=1, imaginary=False)
    ),
    "launch": lambda plan: replace(plan, launch=LaunchOptions(stage_id=1)),
    "reasons": lambda plan: replace(plan, not_runnable=("x",), skipped_checks=("y",)),
    "engine": of_stage(lambda stage: replace(stage, engine="ar")),
    "engine's arguments": of_stage(lambda stage: replace(stage, engine_args={"a": 1})),
    "ranks": of_stage(lambda stage: replace(stage, world_size=2)),
    "replicas": of_stage(lambda stage: replace(stage, replicas=())),
    "routing": of_stage(lambda stage: replace(stage, policy="random")),
    "environment": of_stage(lambda stage: replace(stage, env={"A": "b"})),
    "sampling": of_stage(lambda stage: replace(stage, sampling={"seed": 1})),
}


@pytest.mark.parametrize("change", COMMON.values(), ids=COMMON)
def test_what_all_must_agree_on_changes_it(change: Change) -> None:
    """A start with another value of these is not let in."""
    assert fingerprint(change(PLAN)) != fingerprint(PLAN)


@pytest.mark.parametrize("change", LOCAL.values(), ids=LOCAL)
def test_what_is_a_starts_own_does_not_change_it(change: Change) -> None:
    """Each start decides these for the stage that it runs."""
    assert change(PLAN) != PLAN
    assert fingerprint(change(PLAN)) == fingerprint(PLAN)


def test_an_option_that_is_each_hosts_own_does_not_change_it() -> None:
    """The name by which others reach a host differs from host to host."""

    def reached_at(host: str, segment: int = 1) -> str:
        options = {"host": host, "segment": segment}
        return fingerprint(
            of_edge(lambda edge: replace(edge, connector="mooncake_store", options=options))(PLAN)
        )

    assert reached_at("10.0.0.1") == reached_at("10.0.0.2")
    assert reached_at("10.0.0.1", 2) != reached_at("10.0.0.1")


def test_a_saved_plan_has_the_fingerprint_of_the_plan() -> None:
    """It has a length that goes into a first word."""
    again = from_json(to_json(PLAN))
    assert isinstance(again, Plan)
    assert fingerprint(again) == fingerprint(PLAN)
    assert len(fingerprint(PLAN)) == 64


def test_common_and_local_values_of_a_stage_are_different_things() -> None:
    """What is compared is not also shown as a start's own."""
    stages = common_values(PLAN)["stages"]
    assert isinstance(stages, list)
    assert not set(local_values(PLAN.stages[0])) & set(stages[0])
