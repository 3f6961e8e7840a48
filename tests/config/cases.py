"""Two small models and one call that plans them under files given as values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.host import Host
from stagemesh.config.inputs import ConfigInput, PlanInputs
from stagemesh.connectors.shared_memory import CONNECTOR
from stagemesh.plan.make import Made, make
from stagemesh.plan.values import Plan, StagePlan
from stagemesh.spec.engine import EngineSpec
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import (
    CheckpointConfigs,
    ExecutionType,
    PipelineConfig,
    StagePipelineConfig,
)
from stagemesh.spec.registry import AXES
from stagemesh.spec.unset import UNSET, Unset

HOST: Final = Host(kind="cpu", count=None, memory_bytes=2**40)


def _speech_facts(_configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    moe = StageFacts(
        num_attention_heads=32,
        num_kv_heads=4,
        num_layers=48,
        num_experts=128,
        hidden_size=2048,
        intermediate_size=6144,
        moe_intermediate_size=768,
    )
    return {"thinker": moe, "talker": moe, "code2wav": StageFacts()}


def _picture_facts(_configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    dit = StageFacts(
        num_attention_heads=24,
        num_kv_heads=24,
        num_layers=60,
        num_experts=0,
        hidden_size=3072,
        intermediate_size=12288,
        guidance=True,
    )
    return {"dit": dit}


SPEECH: Final = PipelineConfig(
    model_type="speech",
    summary="a mixture of experts that thinks, one that talks, and a vocoder",
    default_deploy_config_name="speech",
    facts=_speech_facts,
    stages=(
        StagePipelineConfig(stage_id=0, model_stage="thinker"),
        StagePipelineConfig(stage_id=1, model_stage="talker", input_sources=(0,)),
        StagePipelineConfig(
            stage_id=2,
            model_stage="code2wav",
            execution_type=ExecutionType.LLM_GENERATION,
            input_sources=(1,),
            final_output=True,
            final_output_type="audio",
        ),
    ),
)
PICTURE: Final = PipelineConfig(
    model_type="picture",
    summary="one stage that denoises",
    default_deploy_config_name="picture",
    facts=_picture_facts,
    stages=(
        StagePipelineConfig(
            stage_id=0,
            model_stage="dit",
            execution_type=ExecutionType.DIFFUSION,
            final_output=True,
            final_output_type="image",
            weight_folders=("transformer", "text_encoder", "vae"),
        ),
    ),
)
EVERY_AXIS: Final = frozenset(AXES.modules())
ENGINE: Final = EngineSpec(
    name="steps",
    summary="executes every axis",
    runs=frozenset(ExecutionType),
    default_for=frozenset(ExecutionType),
    executes=EVERY_AXIS,
    factory="nowhere:make",
)
CATALOG: Final = Catalog(
    axes={axis.name: axis for axis in AXES.declarations()},
    engines={"steps": ENGINE},
    connectors=dict.fromkeys(CONNECTOR.config_names, CONNECTOR),
    models=tuple(Model(pipeline=each, package="tests.config") for each in (SPEECH, PICTURE)),
)


def planned_from(
    folder: Path,
    model: str = "speech",
    *,
    strategy: object = UNSET,
    deploy: Mapping[str, Mapping[str, object]] | None = None,
    overrides: Mapping[str, object] | Unset = UNSET,
) -> Made:
    """Plan; `strategy` and `deploy` hold stacks and fields by the name of a stage."""
    pipeline = next(each.pipeline for each in CATALOG.models if each.pipeline.model_type == model)
    (folder / "config.json").write_text("{}", encoding="utf-8")
    given: ConfigInput | Unset = UNSET
    if strategy is not UNSET:
        given = {"strategies": strategy}
    entries = [
        {"stage_id": stage.stage_id, **(deploy or {}).get(stage.model_stage, {})}
        for stage in pipeline.stages
    ]
    inputs = PlanInputs(
        model=str(folder),
        strategy_config=given,
        deploy_config={"pipeline": model, "stages": entries},
        stage_overrides=overrides,
    )
    return make(inputs, HOST, CATALOG)


def stage_of(plan: Plan, name: str) -> StagePlan:
    """Return the stage of that name."""
    return next(stage for stage in plan.stages if stage.name == name)


def shape(plan: Plan, name: str) -> tuple[int, int, Mapping[str, int]]:
    """Ranks, replicas and axes of a stage."""
    stage = stage_of(plan, name)
    return (
        stage.world_size,
        len(stage.replicas),
        {axis.axis: axis.size for axis in stage.axes},
    )


def codes(made: Made) -> list[str]:
    """Codes of everything that was found, in order."""
    return [found.code for found in made.diagnostics]
