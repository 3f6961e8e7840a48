"""The model `shadow_play`: two stages that hand a text on."""

from __future__ import annotations

from collections.abc import Mapping

from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import (
    CheckpointConfigs,
    ExecutionType,
    PipelineConfig,
    StagePipelineConfig,
)


def _facts(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    config = configs.root
    heads = config.get("heads")
    return {"caster": StageFacts(num_attention_heads=heads if isinstance(heads, int) else None)}


PIPELINES = (
    PipelineConfig(
        model_type="shadow_play",
        summary="a model of a third party",
        default_deploy_config_name="shadow_play",
        facts=_facts,
        stages=(
            StagePipelineConfig(
                stage_id=0, model_stage="caster", execution_type=ExecutionType.LLM_AR
            ),
            StagePipelineConfig(
                stage_id=1,
                model_stage="screen",
                execution_type=ExecutionType.LLM_GENERATION,
                input_sources=(0,),
                final_output=True,
                final_output_type="text",
            ),
        ),
    ),
)
