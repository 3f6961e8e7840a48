"""Saved plans: what is refused on reading, whatever is installed."""

from __future__ import annotations

import json

import pytest

from stagemesh.plan.devices import Devices
from stagemesh.plan.save import from_json, to_json
from stagemesh.plan.values import Plan
from tests.plan.making import pipeline, planned, request, stage

MODEL = pipeline(
    stage(0, "thinker", loader="m:load", custom_process_next_stage_input_func="m:whole"),
    stage(1, "talker"),
)
DEVICES = Devices(kind="cpu", count=None, memory_bytes=100, shares_memory=True)


@pytest.fixture
def plan() -> Plan:
    """A plan of two stages for two slots of a CPU."""
    return planned(request(MODEL, devices=DEVICES))


def refused(text: str) -> list[str]:
    """Read what must be wrong; return the messages."""
    found = from_json(text, "p.json")
    assert isinstance(found, tuple)
    return [str(diagnostic) for diagnostic in found]


def test_text_that_is_no_plan_is_refused() -> None:
    """Whatever it is instead."""
    assert refused("{")[0].startswith("error[CF002]: not valid JSON")
    assert refused("pipeline: toy\n") == [
        "error[PL040]: this is no saved plan: it is no JSON (p.json)"
    ]
    assert refused("[]") == ["error[CF004]: expected a plan, got a list (p.json)"]
    assert refused("{}") == ["error[PL040]: this is no saved plan: it has no `version` (p.json)"]
    assert refused('{"version": 1, "version": 1}')[0].startswith("error[CF003]")


@pytest.mark.parametrize("version", [0, 2, True, "1", None])
def test_another_version_is_refused(version: object) -> None:
    """A plan means exactly one thing."""
    [found] = refused(json.dumps({"version": version}))
    assert found.startswith("error[PL041]: the plan has version")
    assert ("` as text, and only" in found) is isinstance(version, str)


def test_every_mistake_of_a_plan_is_told(plan: Plan) -> None:
    """Unknown keys and wrong types alike, with their paths."""
    tree = json.loads(to_json(plan))
    tree["stages"][0]["world_size"] = 1.5
    tree["stages"][1]["nonsense"] = 1
    del tree["edges"]
    assert len(refused(json.dumps(tree))) == 3
