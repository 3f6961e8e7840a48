"""Pipeline + settings + facts + devices -> one plan, or every reason why there is none. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stagemesh.config.catalog import Catalog
from stagemesh.config.settings import Settings, StageSettings
from stagemesh.plan.causes import one_for_each_cause
from stagemesh.plan.checks import check_stack
from stagemesh.plan.colocate import hosts_of, named_of, parted, together
from stagemesh.plan.cost.estimate import StageCost, memory_input, stage_cost
from stagemesh.plan.devices import Devices
from stagemesh.plan.edges import effective_async_chunk, plan_edges
from stagemesh.plan.engine import EngineChoice
from stagemesh.plan.kernels import with_one_spelling
from stagemesh.plan.lacking import with_lacking, without_lacking
from stagemesh.plan.launch import launch_options, launch_reasons, ray_reasons
from stagemesh.plan.model_rules import check_model
from stagemesh.plan.params import chosen, model_args
from stagemesh.plan.pins import arrange, is_as_shipped, listed_devices, with_word
from stagemesh.plan.place import Placement
from stagemesh.plan.report import Report
from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.rules.every import every_rule, setup_of
from stagemesh.plan.rules.shares import SHARE, amount_origin, share_of
from stagemesh.plan.runnable import reasons
from stagemesh.plan.sessions import SessionPlan
from stagemesh.plan.stack import Stack, size_notes, stack_of
from stagemesh.plan.stage import StageDraft, plan_stage
from stagemesh.plan.switches import passing_by
from stagemesh.plan.values import CheckpointPlan, Plan
from stagemesh.plan.wide_values import given_values
from stagemesh.plan.wish import DeviceIds, Wish
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import PipelineConfig, StagePipelineConfig


@frozen
class PlanRequest:
    """All that a plan is made from."""

    pipeline: PipelineConfig
    """The model."""
    settings: Settings
    """The merged configuration."""
    checkpoint: CheckpointPlan
    """The checkpoint."""
    facts: Mapping[str, StageFacts]
    """What the checkpoint says about each stage, by name."""
    devices: Devices
    """The devices that may be used."""
    skipped: tuple[str, ...] = ()
    """What reading the checkpoint could not find out."""
    placed: Mapping[int, tuple[DeviceIds, ...]] | None = None
    """Where the replicas of every stage lie, by id; decided here when it is not given."""


@frozen
class PlanResult:
    """A plan, or what stands against it."""

    plan: Plan | None
    """The plan; `None` when a diagnostic is an error."""
    diagnostics: tuple[Diagnostic, ...]
    """Everything found, warnings too."""


def build(request: PlanRequest, catalog: Catalog | None = None) -> PlanResult:
    """Decide everything; `catalog` is what is installed when it is not given."""
    report = Report(request.skipped)
    context = _context(request, Catalog.installed() if catalog is None else catalog, report)
    ruled = _ruled(context, report)
    if report.failed:
        return PlanResult(plan=None, diagnostics=one_for_each_cause(report.diagnostics))
    _tell_unknown_memory(context.drafts, context.placement, report)
    report.skip(*ruled.skipped)
    plan = _plan(request, context, ruled, report)
    return PlanResult(plan=plan, diagnostics=one_for_each_cause(report.diagnostics))


def _context(request: PlanRequest, catalog: Catalog, report: Report) -> RuleContext:
    """Decide what rules look at: axes, engines, places and edges."""
    pipeline = with_lacking(request.pipeline, request.facts)
    settings = without_lacking(pipeline, request.settings, report)
    settings = with_one_spelling(pipeline, settings, report)
    settings = passing_by(pipeline, settings, catalog.engines)
    said = {stage.stage_id: stage for stage in settings.stages}
    drafts = tuple(
        _draft(stage, said[stage.stage_id], request, catalog, report) for stage in pipeline.stages
    )
    wishes = [
        _wish(draft, said[draft.stage_id], request.placed) for draft in drafts if draft.is_sound
    ]
    hosts = hosts_of(named_of(pipeline, settings))
    shared = together(wishes, hosts)
    placement = parted(arrange(shared, request.devices, report), shared)
    async_chunk = effective_async_chunk(pipeline, settings, report)
    edges = plan_edges(
        pipeline,
        settings,
        catalog.connectors,
        hosts=hosts,
        async_chunk=async_chunk,
        report=report,
    )
    return RuleContext(
        pipeline=pipeline,
        settings=settings,
        drafts=drafts,
        placement=placement,
        edges=edges,
        devices=request.devices,
        catalog=catalog,
        async_chunk=async_chunk,
    )


def _plan(request: PlanRequest, context: RuleContext, ruled: Ruling, report: Report) -> Plan:
    """Write everything down."""
    placement, launch = context.placement, launch_options(context.settings.launch)
    names = {draft.stage_id: draft.stage.model_stage for draft in context.drafts}
    return Plan(
        pipeline=context.pipeline.model_type,
        checkpoint=request.checkpoint,
        devices=placement.devices,
        async_chunk=context.async_chunk,
        stages=tuple(
            with_word(
                plan_stage(
                    draft,
                    context.said(draft),
                    placement.replicas[draft.stage_id],
                    setup_of(ruled, draft.stage_id),
                ),
                placement.moved,
            )
            for draft in context.drafts
        ),
        edges=context.edges,
        not_runnable=(
            *reasons(context, ruled),
            *launch_reasons(launch, ruled.executors.values()),
            *ray_reasons(launch, placement, names, ruled.executors),
        ),
        skipped_checks=report.skipped,
        launch=launch,
        values=given_values(context.pipeline, context.settings, context.edges),
        session=ruled.session or SessionPlan(),
        weight_transfer=ruled.weight_transfer,
        active_stream_window=ruled.active_stream_window,
        cuda_mps=bool(ruled.mps),
    )


def _ruled(context: RuleContext, report: Report) -> Ruling:
    """Ask the planner's rules, and the model's own once every value is well."""
    ruled = every_rule(context)
    report.add(*ruled.diagnostics)
    if not report.failed:
        report.add(*check_model(context, ruled))
    return ruled


def _draft(
    stage: StagePipelineConfig,
    settings: StageSettings,
    request: PlanRequest,
    catalog: Catalog,
    report: Report,
) -> StageDraft:
    facts = request.facts.get(stage.model_stage, StageFacts())
    stack = stack_of(stage, settings, facts, catalog.axes)
    settings = replace(settings, fields=stack.all_fields)
    is_sound = check_stack(stack, report)
    choice = chosen(stage, settings, catalog.engines, report)
    return StageDraft(
        stage=stage,
        stack=stack,
        is_sound=is_sound,
        choice=choice,
        model_args=model_args(stage, settings, report),
        cost=_cost(stack, choice, request.devices, settings, report) if is_sound else StageCost(),
    )


def _cost(
    stack: Stack,
    choice: EngineChoice,
    devices: Devices,
    settings: StageSettings,
    report: Report,
) -> StageCost:
    """Ask the engine whether it can work with its arguments, and what the layout will take."""
    if choice.spec is None or not isinstance(choice.args, choice.spec.options):
        return StageCost()
    each = devices.each
    findings = list(choice.spec.check(memory_input(stack, choice, each)))
    for finding in findings:
        said = settings.fields.get(finding.field or "")
        report.add(
            Diagnostic(
                code=finding.code,
                message=f"`{settings.name}`: {finding.message}",
                origin=None if said is None else said.origin,
                help=finding.help,
            )
        )
    if findings:
        return StageCost()  # placement would only say once more that it does not fit
    cost = stage_cost(stack, choice, each)
    for axis in cost.unknown:
        report.skip(
            f"traffic of `{axis}` of `{settings.name}`: the checkpoint does not tell enough"
        )
    return cost


def _wish(
    draft: StageDraft,
    settings: StageSettings,
    placed: Mapping[int, tuple[DeviceIds, ...]] | None,
) -> Wish:
    stack, listed, share = draft.stack, listed_devices(settings), settings.fields.get(SHARE)
    return Wish(
        stage_id=draft.stage_id,
        stage=stack.stage.model_stage,
        world=stack.world,
        num_replicas=stack.num_replicas,
        listed=listed,
        repeats=listed is None or not listed.origin.shipped or is_as_shipped(stack),
        rank_bytes=None if draft.memory is None else draft.memory.total,
        share=share_of(draft),
        share_origin=None if share is None else share.origin,
        amount_origin=amount_origin(draft, settings),
        placed=None if placed is None else placed.get(draft.stage_id, ()),
        notes=tuple(size_notes(stack)),
    )


def _tell_unknown_memory(
    drafts: tuple[StageDraft, ...], placement: Placement, report: Report
) -> None:
    if placement.devices.memory_bytes is None:
        report.skip("memory: that of a device is not known")
        return
    for draft in drafts:
        if draft.memory is None and draft.choice.spec is not None:
            report.skip(
                f"memory of `{draft.stage.model_stage}`: the checkpoint does not tell enough"
            )
