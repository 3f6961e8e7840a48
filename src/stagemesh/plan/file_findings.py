"""What a file shows by itself to be wrong, by the planner's own rules: no checkpoint, no devices.

Engines and their options, fields of other kinds of stage, parameters of requests and of the model,
axes that do not fit, connectors of edges, and what `file_rules` asks for are decided by the file
and the pipeline. What fits a device and what an option needs may depend on what else is given, and
so does the engine of a stage for which the file names none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.settings import Settings, Sourced, StageSettings
from stagemesh.plan.causes import one_for_each_cause
from stagemesh.plan.checks import check_stack, lasting_findings
from stagemesh.plan.colocate import hosts_of, named_of
from stagemesh.plan.cost.estimate import StageCost
from stagemesh.plan.edges import effective_async_chunk, plan_edges
from stagemesh.plan.file_rules import context_of, lasting_rules
from stagemesh.plan.kernels import with_one_spelling
from stagemesh.plan.lacking import without_lacking
from stagemesh.plan.params import chosen, model_args
from stagemesh.plan.report import Report
from stagemesh.plan.stack import stack_of
from stagemesh.plan.stage import StageDraft
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.pipeline import PipelineConfig, StagePipelineConfig

_ENGINE: Final = "engine"
_NOT_TAKEN: Final = frozenset({"PL022", "PL024"})
"""Codes that say what an engine does not take."""


def file_findings(
    pipeline: PipelineConfig, settings: Settings, catalog: Catalog
) -> tuple[Diagnostic, ...]:
    """Hold what a sound file says against its pipeline."""
    report = Report()
    settings = without_lacking(pipeline, settings, report)
    settings = with_one_spelling(pipeline, settings, report)
    drafts = tuple(
        _checked_stage(stage, said, catalog, report)
        for stage, said in zip(pipeline.stages, settings.stages, strict=True)
    )
    chunks = effective_async_chunk(pipeline, settings, report)
    hosts = hosts_of(named_of(pipeline, settings))
    edges = plan_edges(
        pipeline, settings, catalog.connectors, hosts=hosts, async_chunk=chunks, report=report
    )
    report.add(*lasting_rules(context_of(pipeline, settings, catalog, drafts, edges)))
    return one_for_each_cause(report.diagnostics)


def _checked_stage(
    stage: StagePipelineConfig, said: StageSettings, catalog: Catalog, report: Report
) -> StageDraft:
    stack = stack_of(stage, said, StageFacts(), catalog.axes)
    report.add(*lasting_findings(stack))
    said = replace(said, fields=stack.all_fields)
    report.add(*_of_engine(stage, said, catalog))
    return StageDraft(
        stage=stage,
        stack=stack,
        is_sound=check_stack(stack, Report()),
        choice=chosen(stage, said, catalog.engines, Report()),
        model_args=model_args(stage, said, report),
        cost=StageCost(),
    )


def _of_engine(
    stage: StagePipelineConfig, said: StageSettings, catalog: Catalog
) -> tuple[Diagnostic, ...]:
    """Tell what the engine has against a stage, but for what one that may be named later takes."""
    found = _told_by(stage, said, catalog)
    if _ENGINE in said.fields or not any(each.code in _NOT_TAKEN for each in found):
        return found
    refused = [
        {each.origin for each in _told_by(stage, _with_engine(said, name), catalog)}
        for name, spec in catalog.engines.items()
        if stage.execution_type in spec.runs
    ]
    return tuple(
        each
        for each in found
        if each.code not in _NOT_TAKEN or all(each.origin in places for places in refused)
    )


def _told_by(
    stage: StagePipelineConfig, said: StageSettings, catalog: Catalog
) -> tuple[Diagnostic, ...]:
    report = Report()
    chosen(stage, said, catalog.engines, report)
    return tuple(report.diagnostics)


def _with_engine(said: StageSettings, name: str) -> StageSettings:
    named: Sourced[object] = Sourced(
        value=name, origin=Origin(layer=Layer.STAGE, source=f"--set {said.name}.{_ENGINE}={name}")
    )
    return replace(said, fields={**said.fields, _ENGINE: named})
