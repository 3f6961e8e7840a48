"""Every way to say the same about an axis leads to the same layout, and says where it was said."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.diff import differences
from stagemesh.plan.diffusion_parallel import DiffusionParallelConfig
from stagemesh.plan.make import Made
from stagemesh.strategy import MeshAxis, StrategySpec
from tests.config.flagged import CATALOG, made_from, planned, python_made

DEVICES: Final = "--devices 8xH200"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saying:
    """One axis with a size."""

    axis: str
    """The axis."""
    size: int = 2
    """Its size."""
    model: str = "picture"
    """A pipeline whose first stage can have it."""
    stage: str = "dit"
    """The name of that stage."""
    fields: Mapping[str, object]
    """The stage fields that say it; empty where none does."""
    beside: Mapping[str, object] | None = None
    """Fields of the stage without which it cannot be."""


SAYINGS: Final = (
    Saying(axis="tp", fields={"tensor_parallel_size": 2}),
    Saying(axis="dp", fields={"data_parallel_size": 2}),
    Saying(axis="pp", fields={"pipeline_parallel_size": 2}),
    Saying(axis="ep", fields={"enable_expert_parallel": True}, beside={"tensor_parallel_size": 2}),
    Saying(axis="stage_replica", fields={"num_replicas": 2}),
    Saying(axis="sp_ulysses", fields={"ulysses_degree": 2}),
    Saying(axis="sp_ring", fields={"ring_degree": 2}),
    Saying(axis="cfg", fields={"cfg_parallel_size": 2}),
    Saying(
        axis="vae_pp", fields={"vae_patch_parallel_size": 2}, beside={"tensor_parallel_size": 2}
    ),
    Saying(axis="hsdp", fields={"use_hsdp": True, "hsdp_shard_size": 2}),
    Saying(axis="cp", model="solo", stage="front", fields={}),
    Saying(axis="stage_pp", model="demo", stage="front", fields={}),
)


def flag(name: str, value: object) -> str:
    """A field as it is typed."""
    dashed = f"--{name.replace('_', '-')}"
    return dashed if value is True else f"{dashed} {value}"


def ways(said: Saying, folder: Path) -> Iterator[tuple[str, Made]]:
    """Say it in every way that there is; each with how the place begins where it was said."""
    beside = dict(said.beside or {})
    line = " ".join([DEVICES, *(flag(name, value) for name, value in beside.items())])
    entry = {"axis": said.axis, "size": said.size}
    strategy = {"strategies": {said.stage: [entry]}}
    model = said.model
    yield "strategy_config", made_from(folder, line, model=model, strategy=strategy)
    spec = StrategySpec(mesh_axis=MeshAxis(kind=said.axis, size=said.size))
    yield "strategy_config", made_from(folder, line, model=model, strategy={said.stage: [spec]})
    if not said.fields:
        return
    stage = {"stage_id": 0, **said.fields}
    yield "deploy_config", made_from(folder, line, model=model, deploy={"stages": [stage]})
    platforms = {"platforms": {"cuda": {"stages": [stage]}}}
    yield "deploy_config", made_from(folder, line, model=model, deploy=platforms)
    (folder / "base.yaml").write_text(yaml.safe_dump({"stages": [stage]}), encoding="utf-8")
    (folder / "own.yaml").write_text("base_config: base.yaml\n", encoding="utf-8")
    yield (
        str(folder / "base.yaml"),
        made_from(folder, line, model=model, deploy=folder / "own.yaml"),
    )
    typed = " ".join(flag(name, value) for name, value in said.fields.items())
    yield "--", made_from(folder, f"{line} {typed}", model=model)
    for key in ("0", said.stage):
        overrides = json.dumps({key: dict(said.fields)})
        given = f"{line} --stage-overrides '{overrides}'"
        yield "--stage-overrides", made_from(folder, given, model=model)
    pairs = (f"{said.stage}.{name}={json.dumps(value)}" for name, value in said.fields.items())
    sets = " ".join(f"--set {pair}" for pair in pairs)
    yield f"--set {said.stage}.", made_from(folder, f"{line} {sets}", model=model)
    python = PlanInputs(
        model="", devices="8xH200", stage_overrides={said.stage: {**beside, **said.fields}}
    )
    yield "stage_overrides", python_made(folder, python, model)
    if not said.fields.keys() <= DiffusionParallelConfig.__annotations__.keys():
        return
    config = DiffusionParallelConfig(**beside, **said.fields)  # type: ignore[arg-type]  # any field
    python = PlanInputs(model="", devices="8xH200", fields=config.as_given())
    yield "Omni(parallel_config=...)", python_made(folder, python, model)


@pytest.mark.parametrize("said", SAYINGS, ids=lambda said: said.axis)
def test_every_way_leads_to_the_same_plan(said: Saying, tmp_path: Path) -> None:
    """And the size is what was asked for, said by the place where it was said."""
    plans = []
    for place, made in ways(said, tmp_path):
        plan = planned(made)
        first = plan.stages[0]
        assert first.values[f"axes.{said.axis}.size"].origin.startswith(place)
        assert {axis.axis: axis.size for axis in first.axes}[said.axis] == said.size
        plans.append(plan)
    assert [differences(plans[0], plan) for plan in plans] == [()] * len(plans)


def test_every_axis_is_said() -> None:
    """A new one is added here."""
    assert {said.axis for said in SAYINGS} == set(CATALOG.axes)
