"""A model, its checkpoint and a plan that has something of everything, to be saved and edited."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.make import Made, make
from stagemesh.plan.save import to_json
from stagemesh.plan.saved import open_saved
from stagemesh.plan.values import Plan
from tests.plan.making import catalog, pipeline, stage

Json: TypeAlias = Any
"""A value as a file has it."""

HOST: Final = Host(kind="cpu", count=None, memory_bytes=2**20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """`additional_config` of the talker."""

    pitch: float = 1.0
    """Any number."""


MODEL: Final = pipeline(
    stage(
        0,
        "thinker",
        owns_tokenizer=True,
        final_output=True,
        final_output_type="text",
        produces_chunks=True,
        async_chunk_process_next_stage_input_func="m:chunks",
        custom_process_next_stage_input_func="m:whole",
        sampling_constraints={"stop_token_ids": [7]},
    ),
    stage(
        1,
        "talker",
        loader="m:load",
        model_subdir="talker",
        options=Voice,
        final_output=True,
        final_output_type="audio",
    ),
)
CATALOG: Final = catalog(MODEL)
DEPLOY: Final[Mapping[str, object]] = {
    "pipeline": "toy",
    "connectors": {"shm": {"name": "SharedMemoryConnector", "extra": {"arena_bytes": 2**18}}},
    "stages": [
        {
            "stage_id": 0,
            "engine": "toy",
            "max_num_seqs": 4,
            "env": {"COLOUR": "red"},
            "default_sampling_params": {"temperature": 0.5, "stop_token_ids": [1]},
            "output_connectors": {"to_stage_1": "shm"},
        },
        {"stage_id": 1, "additional_config": {"pitch": 2.0}, "devices": "0,1"},
    ],
}
STRATEGY: Final[Mapping[str, object]] = {
    "strategies": {
        "thinker": [{"axis": "tp", "size": 2, "name": "halves"}],
        "talker": [{"axis": "stage_replica", "size": 2, "routing": "random"}],
    }
}


def planned_in(folder: Path, *set_values: str) -> Plan:
    """Make the checkpoint in `folder` and plan it."""
    (folder / "config.json").write_text("{}", encoding="utf-8")
    inputs = PlanInputs(
        model=str(folder),
        deploy_config=DEPLOY,
        strategy_config=STRATEGY,
        set_values=set_values,
    )
    made = make(inputs, HOST, CATALOG)
    assert made.plan is not None, made.diagnostics
    return made.plan


def tree_of(plan: Plan) -> Json:
    """The plan as its file has it."""
    return json.loads(to_json(plan))


def opened(tree: object, folder: Path) -> Made:
    """Save `tree` and open it as a plan."""
    file = folder / "plan.json"
    file.write_text(json.dumps(tree), encoding="utf-8")
    return open_saved(file, HOST, CATALOG)


def refusal(tree: object, folder: Path) -> list[str]:
    """Open what must be refused; return codes and messages."""
    made = opened(tree, folder)
    assert made.plan is None
    return [f"{found.code}: {found.message}" for found in made.diagnostics]
