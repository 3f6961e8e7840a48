"""Pipelines of every kind of stage, planned from what a user types, for the tests of flags."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stagemesh.cli._arguments import add_plan_arguments, inputs_from
from stagemesh.cli._parser import Parser
from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.host import Host
from stagemesh.config.inputs import ConfigInput, GivenField, PlanInputs
from stagemesh.config.load import Loaded, load
from stagemesh.plan.diagnostics import diagnostics_text
from stagemesh.plan.make import Made, make
from stagemesh.plan.values import Plan, StagePlan
from stagemesh.spec.pipeline import ExecutionType, PipelineConfig, StagePipelineConfig
from stagemesh.spec.unset import UNSET, Unset

HOST: Final = Host(kind="cpu", count=None, memory_bytes=96 * 2**30)


def _stage(
    stage_id: int, name: str, kind: ExecutionType, final: str | None = None
) -> StagePipelineConfig:
    return StagePipelineConfig(
        stage_id=stage_id,
        model_stage=name,
        execution_type=kind,
        input_sources=(stage_id - 1,) if stage_id else (),
        final_output=final is not None,
        final_output_type=final,
        produces_chunks=True,
    )


def _pipeline(
    name: str,
    *stages: StagePipelineConfig,
    aliases: Mapping[str, tuple[str, str]] | None = None,
) -> PipelineConfig:
    return PipelineConfig(
        model_type=name,
        summary="for tests",
        stages=stages,
        default_deploy_config_name=name,
        stage_cli_aliases=aliases or {},
    )


AR, GENERATION, DIFFUSION = ExecutionType
PIPELINES: Final = (
    _pipeline(
        "demo",
        _stage(0, "front", AR, "text"),
        _stage(1, "mid", AR),
        _stage(2, "tail", GENERATION, "audio"),
    ),
    _pipeline("solo", _stage(0, "front", AR, "text")),
    _pipeline("picture", _stage(0, "dit", DIFFUSION, "image")),
    _pipeline("two_dits", _stage(0, "base", DIFFUSION), _stage(1, "refiner", DIFFUSION, "image")),
    _pipeline("ar_dit", _stage(0, "front", AR), _stage(1, "dit", DIFFUSION, "image")),
    _pipeline(
        "split",
        _stage(0, "text_encoder", GENERATION),
        _stage(1, "denoiser", DIFFUSION),
        _stage(2, "vae", GENERATION, "image"),
        aliases={"text_encoder_tp_size": ("text_encoder", "tensor_parallel_size")},
    ),
)
INSTALLED: Final = Catalog.installed()
CATALOG: Final = dataclasses.replace(
    INSTALLED,
    models=tuple(Model(pipeline=each, package="nowhere") for each in PIPELINES),
)


def typed(arguments: list[str]) -> argparse.Namespace:
    """Parse what stands behind a planning command."""
    parser = Parser(prog="plan", allow_abbrev=False)
    add_plan_arguments(parser)
    return parser.parse_args(arguments)


def made_from(
    folder: Path,
    line: str,
    *,
    model: str = "demo",
    deploy: ConfigInput | Unset = UNSET,
    strategy: ConfigInput | Unset = UNSET,
    further: tuple[GivenField, ...] = (),
) -> Made:
    """Plan a model from a command line; its checkpoint is written to `folder`."""
    (folder / "config.json").write_text(json.dumps({"model_type": model}), encoding="utf-8")
    inputs = inputs_from(typed([str(folder), *shlex.split(line)]))
    inputs = dataclasses.replace(
        inputs,
        deploy_config={} if deploy is UNSET else deploy,
        strategy_config=strategy,
        fields=(*inputs.fields, *further),
    )
    return make(inputs, HOST, CATALOG)


def python_made(folder: Path, inputs: PlanInputs, model: str = "demo") -> Made:
    """Plan a model from what a Python caller gives."""
    (folder / "config.json").write_text(json.dumps({"model_type": model}), encoding="utf-8")
    return make(dataclasses.replace(inputs, model=str(folder), deploy_config={}), HOST, CATALOG)


def python_loaded(folder: Path, model: str, *fields: GivenField) -> Loaded:
    """Load the settings of a model with fields for all stages."""
    (folder / "config.json").write_text(json.dumps({"model_type": model}), encoding="utf-8")
    inputs = PlanInputs(model=str(folder), deploy_config={}, fields=fields)
    return load(inputs, CATALOG)


def planned(made: Made) -> Plan:
    """Return the plan; there must be one."""
    assert made.plan is not None, text_of(made)
    return made.plan


def text_of(made: Made) -> str:
    """Return what is shown of the findings."""
    return diagnostics_text(made.diagnostics, made.documents)


def codes_of(made: Made) -> list[str]:
    """Return the codes of the findings."""
    return [found.code for found in made.diagnostics]


def value_in(plan: Plan, path: str) -> object:
    """Return a value by `stage.axis`, `stage.axis.option`, `stage.field`, or `field` of the plan.

    What is not there is `UNSET`.
    """
    name, _, inside = path.partition(".")
    stage = next((each for each in plan.stages if each.name == name), None)
    if stage is None:
        return getattr(plan, path)
    return _of_stage(stage, inside)


def _of_stage(stage: StagePlan, path: str) -> object:
    name, _, member = path.partition(".")
    axis = next((each for each in stage.axes if each.axis == name), None)
    if axis is not None:
        return axis.options[member] if member else axis.size
    if name in ("world_size", "policy"):
        return getattr(stage, name)
    found: object = {**stage.engine_args, **stage.stage_args, "sampling": stage.sampling}
    for part in path.split("."):
        found = found.get(part, UNSET) if isinstance(found, Mapping) else UNSET
    return found
