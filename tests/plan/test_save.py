"""Saved plans: what is refused on reading, and when a plan no longer fits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from stagemesh.config.host import Host
from stagemesh.plan.devices import Devices
from stagemesh.plan.save import drift, from_json, to_json
from stagemesh.plan.values import CheckpointPlan, Plan
from tests.plan.making import CHECKPOINT, catalog, pipeline, planned, request, stage

MODEL = pipeline(
    stage(0, "thinker", loader="m:load", custom_process_next_stage_input_func="m:whole"),
    stage(1, "talker"),
)
CPU = Host(kind="cpu", count=None, memory_bytes=100)
DEVICES = Devices(kind="cpu", count=None, memory_bytes=100, shares_memory=True)


@pytest.fixture
def plan() -> Plan:
    """A plan of two stages for two slots of a CPU."""
    return planned(request(MODEL, devices=DEVICES))


def drifted(plan: Plan, *, checkpoint: CheckpointPlan = CHECKPOINT, host: Host = CPU) -> list[str]:
    """Return the codes of everything that no longer fits."""
    return [found.code for found in drift(plan, checkpoint, host, catalog(MODEL))]


def refused(text: str) -> list[str]:
    """Read what must be wrong; return the messages."""
    found = from_json(text, "p.json")
    assert isinstance(found, tuple)
    return [str(diagnostic) for diagnostic in found]


def test_text_that_is_no_plan_is_refused() -> None:
    """Whatever it is instead."""
    assert refused("{")[0].startswith("error[CF002]: not valid JSON")
    assert refused("[]") == ["error[CF004]: expected a plan, got a list (p.json)"]
    assert refused("{}") == ["error[PL040]: this is no saved plan: it has no `version` (p.json)"]
    assert refused('{"version": 1, "version": 1}')[0].startswith("error[CF003]")


@pytest.mark.parametrize("version", [0, 2, True, "1", None])
def test_another_version_is_refused(version: object) -> None:
    """A plan means exactly one thing."""
    [found] = refused(json.dumps({"version": version}))
    assert found.startswith("error[PL041]: the plan has version")


def test_every_mistake_of_a_plan_is_told(plan: Plan) -> None:
    """Unknown keys and wrong types alike, with their paths."""
    tree = json.loads(to_json(plan))
    tree["stages"][0]["world_size"] = 1.5
    tree["stages"][1]["nonsense"] = 1
    del tree["edges"]
    assert len(refused(json.dumps(tree))) == 3


def test_a_plan_fits_where_it_was_made(plan: Plan) -> None:
    """Nothing has changed."""
    assert drifted(plan) == []


def test_a_changed_checkpoint_is_told(plan: Plan) -> None:
    """Its configuration is compared, not its path."""
    assert drifted(plan, checkpoint=replace(CHECKPOINT, path="/moved")) == []
    assert drifted(plan, checkpoint=replace(CHECKPOINT, config_hash="x")) == ["PL042"]


@pytest.mark.parametrize(
    ("host", "found"),
    [
        (Host(kind="cuda", count=2, memory_bytes=None), ["PL043"]),
        (Host(kind="cpu", count=1, memory_bytes=None), ["PL044"]),
        (Host(kind="cpu", count=2, memory_bytes=None), []),
        (Host(kind="cpu", count=None, memory_bytes=99), ["PL045"]),
        (Host(kind="cpu", count=None, memory_bytes=None), []),
    ],
)
def test_another_machine_is_told(plan: Plan, host: Host, found: list[str]) -> None:
    """Kind, number and memory of the devices."""
    assert drifted(plan, host=host) == found


def test_imaginary_devices_fit_no_machine_and_every_machine(plan: Plan) -> None:
    """The plan itself says that it cannot be run."""
    imaginary = replace(plan, devices=replace(plan.devices, kind="H200", imaginary=True))
    assert drifted(imaginary) == []


def test_a_pipeline_that_is_not_installed_is_told(plan: Plan) -> None:
    """Its code could not be found."""
    assert drifted(replace(plan, pipeline="gone")) == ["PL046"]


def test_a_plan_cannot_bring_code_of_its_own(plan: Plan) -> None:
    """References that the installed pipeline does not declare are not followed."""
    loader = replace(plan.stages[0], loader="os:system")
    assert drifted(replace(plan, stages=(loader, plan.stages[1]))) == ["PL047"]
    bridge = replace(plan.edges[0], bridge="os:system")
    assert drifted(replace(plan, edges=(bridge,))) == ["PL047"]
    assert drifted(replace(plan, edges=())) == ["PL047"]
