"""A plan said in other words leads to the same plan, and what has no word is listed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.inputs import PlanInputs
from stagemesh.config.launch import LaunchOptions
from stagemesh.config.plain import plain_fields
from stagemesh.connectors.mooncake_store import MooncakeStoreOptions
from stagemesh.plan.devices import Devices
from stagemesh.plan.export.dump import yaml_text
from stagemesh.plan.export.formats import FORMATS
from stagemesh.plan.make import make
from stagemesh.plan.setup import MpsPlan, NumaPlan, StageSetup
from stagemesh.plan.values import MemoryPlan, Plan
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.patterns import Policy
from stagemesh.spec.pipeline import ExecutionType
from tests.plan.making import Said, axis, catalog, pipeline, planned, request, stage
from tests.plan.saving import CATALOG, HOST, MODEL, planned_in

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
    assert decisions(made.plan) == decisions(plan)


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
        "- `thinker.dp.routing: least_queue`, which it does not carry out",
        "- `dit.stage_pp.size: 4`",
        "- `thinker.stage_replica.routing: random`: it has one policy for all",
        "- `dit.stage_replica.routing: round_robin`: it has one policy for all",
    ]
    stages = yaml.safe_load(text)["stages"]
    assert stages[0]["data_parallel_size"] == 2
    assert stages[1] == {
        "stage_id": 1,
        "devices": "4,5,6,7",
        "cfg_parallel_size": 2,
        "num_replicas": 2,
        "input_connectors": {"from_stage_0": "shared_memory"},
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
    assert yaml.safe_load(text)["connectors"] == {
        "shared_memory": {"name": "SharedMemoryConnector"}
    }
    assert "- `edges.0-1.arena_bytes: 262144`, an option of connector `shared_memory`" in text
    assert "- `thinker.tp.name: halves`" in text


def test_edges_share_a_connector_where_they_say_the_same() -> None:
    """Each end names it, so that the file can be read again without a warning."""
    shared = MooncakeStoreOptions(host="a")
    text = FORMATS["vllm-omni"].write(with_connectors(shared, shared), TRAINS)
    assert yaml.safe_load(text)["connectors"]["mooncake_store"]["extra"]["host"] == "a"
    text = FORMATS["vllm-omni"].write(with_connectors(shared, MooncakeStoreOptions()), TRAINS)
    found = yaml.safe_load(text)
    assert set(found["connectors"]) == {"mooncake_store", "mooncake_store_1"}
    assert found["stages"][1]["input_connectors"] == {"from_stage_0": "mooncake_store"}
    assert found["stages"][1]["output_connectors"] == {"to_stage_2": "mooncake_store_1"}


def with_connectors(*options: MooncakeStoreOptions) -> Plan:
    """Three stages in a row, and what is said about the edges between them."""
    base = planned(request(TRAIN))
    edges = tuple(
        replace(edge, connector="mooncake_store", options=plain_fields(each))
        for edge, each in zip(base.edges, options, strict=True)
    )
    return replace(base, edges=edges)


TRAIN = pipeline(stage(0, "thinker"), stage(1, "talker"), stage(2, "vocoder"))
TRAINS = replace(catalog(TRAIN), connectors=Catalog.installed().connectors)


def test_pipelines_of_our_own_are_told(plan: Plan) -> None:
    """That system names what it does not know when it starts; what it finds itself has no name."""

    def said(**changes: object) -> tuple[str | None, str]:
        model = replace(MODEL, **changes)  # type: ignore[arg-type]
        known = replace(CATALOG, models=(Model(pipeline=model, package="nowhere"),))
        text = FORMATS["vllm-omni"].write(plan, known)
        listed = [line for line in text.splitlines() if line.startswith("# - `pipeline: ")]
        return yaml.safe_load(text).get("pipeline"), "".join(listed)

    assert said() == ("toy", "")
    assert said(checkpoint_recipe="m:make") == (
        "toy",
        "# - `pipeline: toy`: a pipeline of stagemesh",
    )
    cut = said(diffusers_class_names=("Flux",), variant_of="flux")
    assert cut == ("toy", "# - `pipeline: toy`: it runs such a checkpoint as one stage")
    assert said(diffusers_class_names=("Glm",)) == ("toy", "")


def test_what_no_deploy_file_says_stands_above_it(plan: Plan) -> None:
    """Flags of the start, in the words that give them again."""
    assert "given with" not in FORMATS["yaml"].write(plan, CATALOG)
    launch = LaunchOptions(stage_id=0, headless=True, omni_master_address="a b", init_timeout=600)
    started = replace(plan, launch=launch)
    flags = "--stage-id 0 --headless --omni-master-address 'a b'"
    assert f"# No file says how it is started: give `{flags}`, too.\n" in FORMATS["yaml"].write(
        started, CATALOG
    )
    assert f"--omni-lb-policy random {flags}`" in FORMATS["vllm-omni"].write(started, CATALOG)
    assert f"how it is started: `{flags}`" in unsaid(started)


def test_numbers_of_stages_stay_numbers() -> None:
    """The other system takes no text for the stages of a group."""
    assert yaml_text({"replica_groups": ({0: 0, 1: 2},)}) == "replica_groups:\n- 0: 0\n  1: 2\n"


def test_what_its_release_does_not_read_is_told(plan: Plan) -> None:
    """Its documentation is ahead of it."""
    assert "its release" not in FORMATS["vllm-omni"].write(plan, CATALOG)
    text = FORMATS["vllm-omni"].write(replace(plan, cuda_mps=True), CATALOG)
    assert "# Newer than its release 0.30.0: `cuda_mps`.\n" in text


def unsaid(made: Plan) -> list[str]:
    """What placement groups do not say."""
    found = json.loads(FORMATS["ray"].write(made, catalog()))["cannot_express"]
    assert isinstance(found, list)
    return found


def test_placement_groups_list_what_they_do_not_say(plan: Plan) -> None:
    """Which devices, what a process needs there, and where the rest of the plan is kept."""
    memory = MemoryPlan(weights=1, cache=1, workspace=1)
    setup = StageSetup(numa=NumaPlan(binds="workers", replicas=()), mps=MpsPlan(off_because=None))
    first = replace(plan.stages[0], memory=memory, setup=setup)
    devices = replace(plan.devices, kind="H200")
    told = unsaid(replace(plan, devices=devices, stages=(first, *plan.stages[1:])))
    assert told == [
        "kind of device: `H200`; Ray counts it as `GPU`, like all of that name",
        "`thinker.devices: 2,3`; Ray takes any that are free",
        "`thinker`: memory of a rank, 3 bytes",
        "`thinker`: binding to NUMA nodes",
        "`thinker`: CUDA MPS",
        "`thinker.env.COLOUR`; give it to the actors of the stage",
        "`talker.devices: 0,1`; Ray takes any that are free",
        "engines with arguments, axes, edges, sessions: `-o plan.json` without `--as` saves them",
    ]
    assert unsaid(plan)[0].startswith("`thinker.devices")


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


@pytest.mark.parametrize(
    ("kind", "resource"),
    [
        ("H100", "GPU"),
        ("cuda", "GPU"),
        ("MI300X", "GPU"),
        ("Max1550", "GPU"),
        ("Ascend910B", "NPU"),
        ("MTTS4000", "MUSA"),
    ],
)
def test_devices_are_asked_for_by_the_name_that_ray_has(
    plan: Plan, kind: str, resource: str
) -> None:
    """It counts few kinds as GPUs; what it does not find is named when a node is started."""
    made = replace(plan, devices=replace(plan.devices, kind=kind))
    for group in bundles(made):
        assert [each[resource] for each in group["bundles"]] == [1] * len(group["ranks"])
    told = unsaid(made)
    assert told[0] == (
        f"kind of device: `{kind}`; Ray counts it as `{resource}`, like all of that name"
    )
    started = [each for each in told if "--resources" in each]
    assert started == (
        []
        if resource != "MUSA"
        else [
            (
                "how many devices a node has: Ray finds none of these;"
                """ start it with `--resources='{"MUSA": N}'`"""
            )
        ]
    )


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
    assert "- `thinker.stage_replica.routing: hash`: it has no such" in text
    assert "- `thinker.stage_replica.load_bound: 1.25`" in text
    assert "`dp`" not in text
    assert "connectors" not in yaml.safe_load(text)
