"""What the installed pipeline of a plan says, beside what the plan itself holds."""

from __future__ import annotations

from stagemesh.plan.values import Plan
from stagemesh.spec.pipeline import StagePipelineConfig
from stagemesh.spec.registry import MODELS


def declared_stage(plan: Plan, name: str) -> StagePipelineConfig:
    """Return a stage as declared; one without anything where no such pipeline is installed."""
    declared = next(
        (
            pipeline.stage(name)
            for pipeline in MODELS.declarations()
            if pipeline.model_type == plan.pipeline
        ),
        None,
    )
    return declared or StagePipelineConfig(stage_id=0, model_stage=name)
