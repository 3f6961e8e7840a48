"""A plan said in other words leads to the same plan, and what has no word is listed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.devices import Devices
from stagemesh.plan.export.formats import FORMATS
from stagemesh.plan.make import make
from stagemesh.plan.values import Plan
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.patterns import Policy
from stagemesh.spec.pipeline import ExecutionType
from tests.plan.making import Said, axis, catalog, pipeline, planned, request, stage
from tests.plan.saving import CATALOG, HOST, planned_in

Json: TypeAlias = Any
"""A value as a file has it."""

H200 = Devices(kind="H200", count=8, memory_bytes=None, imaginary=True)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A plan that has something of everything."""
    return planned_in(tmp_path)


def strategy_in(text: str) -> Mapping[str, object]:
    """The strategy that the comments of a deploy file hold."""
    lines = [line[2:] for line in text.splitlines() if line.startswith("#")]
    found = yaml.safe_load("\n".join(lines[lines.index("strategies:") :]))
    assert isinstance(found, dict)
    return found


def decisions(plan: Plan) -> Plan:
    """The plan without the record of where its values came from."""
    stages = tuple(replace(each, values={}) for each in plan.stages)
    return replace(plan, stages=stages, values={})


def test_a_flat_deploy_file_leads_to_the_same_plan(plan: Plan) -> None:
    """With the strategy that its comments hold."""
    text = FORMATS["yaml"].write(plan, CATALOG)
    inputs = PlanInputs(
        model=plan.checkpoint.path,
        deploy_config=yaml.safe_load(text),
        strategy_config=strategy_in(text),
    )
    made = make(inputs, HOST, CATALOG)
    assert made.diagnostics == ()
    assert made.plan is not None
    label = replace(made.plan.stages[0].axes[0], label="halves")  # a field has no room for it
    first = replace(made.plan.stages[0], axes=(label,))
    again = replace(made.plan, stages=(first, *made.plan.stages[1:]))
    assert decisions(again) == decisions(plan)


def test_a_flat_deploy_file_needs_no_strategy_where_fields_say_everything() -> None:
    """Axes become the fields that deploy files have for them."""
    solo = pipeline(stage(0, "thinker"))
    made = planned(request(solo, {"thinker": Said(axes=[axis("tp", 2), axis("stage_replica", 2)])}))
    text = FORMATS["yaml"].write(made, catalog(solo))
    assert "strategies" not in text
    [entry] = yaml.safe_load(text)["stages"]
    assert (entry["tensor_parallel_size"], entry["num_replicas"]) == (2, 2)
    assert entry["devices"] == "0,1,2,3"


def test_the_form_of_vllm_omni_lists_what_it_cannot_express() -> None:
    """Policies of several stages, a policy of `dp`, axes without a field."""
    two = pipeline(stage(0, "thinker"), stage(1, "dit", execution_type=ExecutionType.DIFFUSION))
    said = {
        "thinker": Said(
            axes=[axis("stage_replica", 2, Policy.RANDOM), axis("dp", 2, Policy.LEAST_QUEUE)]
        ),
        "dit": Said(axes=[axis("stage_replica", 2), axis("stage_pp", 4), axis("cfg", 2)]),
    }
    text = FORMATS["vllm-omni"].write(
        planned(request(two, said, facts=StageFacts(guidance=True))), catalog(two)
    )
    comments = [line[2:] for line in text.splitlines() if line.startswith("# ")]
    assert comments[comments.index("vllm-omni cannot express:") + 1 :] == [
        "- axis `dp` of `thinker`: `routing: least_queue` is not carried out",
        "- axis `stage_pp` of `dit`: `size`",
        (
            "- a routing policy for each stage (`thinker`: random, `dit`: round_robin):"
            " it has one for all"
        ),
    ]
    stages = yaml.safe_load(text)["stages"]
    assert stages[0]["data_parallel_size"] == 2
    assert stages[1] == {
        "stage_id": 1,
        "devices": "4,5,6,7",
        "cfg_parallel_size": 2,
        "num_replicas": 2,
    }


def test_the_form_of_vllm_omni_gives_the_command(plan: Plan) -> None:
    """One policy for all replicas is a flag, and the layout can be given without the file."""
    text = FORMATS["vllm-omni"].write(plan, CATALOG)
    assert "--omni-lb-policy random`" in text
    line = next(line for line in text.splitlines() if "--stage-overrides" in line)
    overrides = json.loads(line.partition("'")[2].rpartition("'")[0])
    assert overrides == {
        "0": {"devices": "2,3", "tensor_parallel_size": 2},
        "1": {"devices": "0,1", "num_replicas": 2},
    }
    assert yaml.safe_load(text)["connectors"] == {"edge 0 -> 1": {"name": "SharedMemoryConnector"}}


def bundles(made: Plan) -> list[Json]:
    """The placement groups of a plan."""
    groups = json.loads(FORMATS["ray"].write(made, catalog()))["placement_groups"]
    assert isinstance(groups, list)
    return groups


def test_every_replica_is_a_placement_group_of_its_ranks() -> None:
    """As many GPU bundles as the world, on one node; never a group without a GPU."""
    dit = pipeline(stage(0, "dit", execution_type=ExecutionType.DIFFUSION))
    axes = [axis("tp", 2), axis("sp_ulysses", 2), axis("stage_replica", 2)]
    groups = bundles(planned(request(dit, {"dit": Said(axes=axes)}, devices=H200)))
    assert [group["name"] for group in groups] == ["dit[0]", "dit[1]"]
    for group in groups:
        assert group["strategy"] == "STRICT_PACK"
        assert group["bundles"] == [{"CPU": 1, "GPU": 1}] * 4


def test_replicas_that_share_a_device_share_a_group() -> None:
    """A device is asked for once, with a CPU for every rank on it."""
    both = pipeline(stage(0, "thinker"), stage(1, "talker"), stage(2, "vocoder"))
    said = {
        "thinker": Said(axes=[axis("tp", 2)], fields={"devices": "0,1"}),
        "talker": Said(fields={"devices": "1"}),
        "vocoder": Said(fields={"devices": "2"}),
    }
    groups = bundles(planned(request(both, said, devices=H200)))
    assert [group["name"] for group in groups] == ["talker[0]+thinker[0]", "vocoder[0]"]
    assert groups[0]["bundles"] == [{"CPU": 1, "GPU": 1}, {"CPU": 2, "GPU": 1}]
    assert groups[0]["ranks"] == [["thinker[0].0"], ["thinker[0].1", "talker[0].0"]]


def test_cpu_slots_ask_for_no_gpu(plan: Plan) -> None:
    """A slot is one CPU for each rank on it."""
    assert {tuple(each) for group in bundles(plan) for each in group["bundles"]} == {("CPU",)}


def test_the_form_of_vllm_omni_knows_three_policies() -> None:
    """Hashing is none of them; `dp` with the usual policy needs no word, and one stage no edge."""
    solo = pipeline(stage(0, "thinker"))
    axes = [axis("stage_replica", 2, Policy.HASH), axis("dp", 2)]
    text = FORMATS["vllm-omni"].write(
        planned(request(solo, {"thinker": Said(axes=axes)})), catalog(solo)
    )
    assert "- routing policy `hash`" in text
    assert "`dp`" not in text
    assert "connectors" not in yaml.safe_load(text)
