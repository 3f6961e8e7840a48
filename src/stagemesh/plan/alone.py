"""A plan of a pipeline alone: no checkpoint, no deploy file, as many devices as it needs.

For questions about a layout that nobody is about to run: what a stack of axes comes to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.fields import StageField, stage_fields
from stagemesh.config.patch import Patch
from stagemesh.config.place import Run
from stagemesh.config.settle import settle
from stagemesh.plan.build import PlanRequest, PlanResult, build
from stagemesh.plan.devices import ANY_DEVICES
from stagemesh.plan.values import CheckpointPlan
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import ExecutionType, PipelineConfig, StagePipelineConfig

_NOWHERE: Final = CheckpointPlan(path="", config_hash="")


def one_stage(name: str, kind: ExecutionType) -> PipelineConfig:
    """Return a pipeline of one stage."""
    stage = StagePipelineConfig(
        stage_id=0, model_stage=name, execution_type=kind, final_output=True
    )
    return PipelineConfig(
        model_type=name, summary="one stage", stages=(stage,), default_deploy_config_name=name
    )


def plan_alone(
    pipeline: PipelineConfig,
    patches: Iterable[Patch],
    run: Run,
    *,
    catalog: Catalog,
    fields: Mapping[str, StageField] | None = None,
    facts: Mapping[str, StageFacts] | None = None,
) -> PlanResult:
    """Plan what was read; `run` holds what was found on the way, `fields` are all stage fields."""
    known = stage_fields(catalog) if fields is None else fields
    settings = settle(patches, pipeline, catalog, known, run)
    if any(found.is_error for found in run.findings):
        return PlanResult(plan=None, diagnostics=tuple(run.findings))
    result = build(
        PlanRequest(
            pipeline=pipeline,
            settings=settings,
            checkpoint=_NOWHERE,
            facts={} if facts is None else facts,
            devices=ANY_DEVICES,
        ),
        catalog,
    )
    return replace(result, diagnostics=(*run.findings, *result.diagnostics))
