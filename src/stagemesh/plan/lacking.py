"""Fields that nothing in a stage can use although its kind has them.

Its pipeline says so of every checkpoint, the facts of one say so of that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stagemesh.config.settings import Settings, StageSettings
from stagemesh.plan.report import Report
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import PipelineConfig, StagePipelineConfig


def with_lacking(pipeline: PipelineConfig, facts: Mapping[str, StageFacts]) -> PipelineConfig:
    """Return the pipeline as one checkpoint fills it: its stages lack what that one lacks too."""
    return replace(pipeline, stages=tuple(_lacking(stage, facts) for stage in pipeline.stages))


def _lacking(stage: StagePipelineConfig, facts: Mapping[str, StageFacts]) -> StagePipelineConfig:
    known = facts.get(stage.model_stage, StageFacts())
    return replace(stage, lacks={**known.lacks, **stage.lacks})


def without_lacking(pipeline: PipelineConfig, settings: Settings, report: Report) -> Settings:
    """Drop such fields, and tell of each; what else is wrong with them does not matter."""
    lacks = {stage.stage_id: stage.lacks for stage in pipeline.stages}
    if not any(lacks.values()):
        return settings
    stages = tuple(_without(stage, lacks[stage.stage_id], report) for stage in settings.stages)
    return replace(settings, stages=stages)


def _without(stage: StageSettings, lacks: Mapping[str, str], report: Report) -> StageSettings:
    for name, given in stage.fields.items():
        if name in lacks:
            report.add(
                Diagnostic(
                    code="PL027",
                    message=f"nothing in the stage `{stage.name}` uses `{name}`",
                    origin=given.origin,
                    help=lacks[name],
                )
            )
    kept = {name: given for name, given in stage.fields.items() if name not in lacks}
    return replace(stage, fields=kept)
