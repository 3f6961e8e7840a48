"""Why a valid plan cannot be run yet. An empty answer means that it can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Final

from stagemesh.config.kind_fields import Recovery, Sharing
from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.rules.frontends import num_frontends
from stagemesh.plan.rules.numa import placeless
from stagemesh.plan.sessions import DuplexPlan
from stagemesh.plan.stack import StackedAxis
from stagemesh.plan.stage import StageDraft
from stagemesh.plan.values import EdgePlan
from stagemesh.spec.axis import Axis, WorldRole
from stagemesh.spec.engine import EngineSpec
from stagemesh.spec.hooks import LayerHookSpec

_DECIDED: Final = frozenset(
    {
        "model_runner",
        "distributed_executor_backend",
        "numa_bind",
        "numa_bind_nodes",
        "numa_bind_cpus",
        *(item.name for item in fields(Sharing)),
        *(item.name for item in fields(Recovery)),
    }
)
"""Fields that are no affair of an engine: the plan has decided what they come to."""
_AS_IT_IS: Final[Mapping[str, object]] = {"enable_lora": False, "enable_sleep_mode": False}
"""Values that ask for nothing."""


def reasons(context: RuleContext, ruled: Ruling) -> tuple[str, ...]:
    """Return a sentence for everything that nothing executes yet."""
    pipeline, devices = context.pipeline, context.devices
    found = [] if pipeline.planning_only is None else [pipeline.planning_only]
    for draft in context.drafts:
        found += _of_stage(draft, ruled)
    found += _of_windows(context)
    if pipeline.planning_only is None:
        found += [reason for draft in context.drafts for reason in _without_weights(draft)]
        found += [reason for edge in context.edges for reason in _of_model(edge)]
    found += placeless(context, ruled.numa)
    found += _of_edges(context)
    found += _of_pipeline(context, ruled)
    if devices.imaginary:
        found.append(f"the `{devices.kind}` devices are imaginary")
    return tuple(found)


def _of_model(edge: EdgePlan) -> Iterator[str]:
    for option in edge.model_options:
        yield f"edge {edge.source} -> {edge.target}: nothing acts on `{option}` yet"


def _without_weights(draft: StageDraft) -> Iterator[str]:
    spec, stage = draft.choice.spec, draft.stage
    if spec is not None and spec.needs_weights and draft.stack.facts.weight_bytes is None:
        yield f"`{stage.model_stage}`: the checkpoint has no weights in `{stage.model_subdir}`"


def _of_stage(draft: StageDraft, ruled: Ruling) -> Iterator[str]:
    name, spec = draft.stage.model_stage, draft.choice.spec
    if spec is None:
        yield f"`{name}`: no engine runs `{draft.stage.execution_type.value}` stages yet"
        return
    if spec.planning_only is not None:
        yield f"`{name}`: {spec.planning_only}"
    for field, value in draft.choice.stage_args.items():
        if field not in _DECIDED and value != _AS_IT_IS.get(field, ...):
            yield f"`{name}`: engine `{spec.name}` does not act on `{field}` yet"
    for item in draft.stack.axes:
        for reason in _of_axis(item, spec):
            yield f"`{name}`: {reason}"
    if spec.owns_ranks and ruled.executors[draft.stage_id] == "ray":
        yield f"`{name}`: engine `{spec.name}` starts its ranks itself, and not by `ray`"
    yield from _of_setup(draft, ruled)


def _of_axis(item: StackedAxis, engine: EngineSpec) -> Iterator[str]:
    axis = item.axis
    for spec in item.given_bindings:
        bound = spec.hook_id if isinstance(spec, LayerHookSpec) else spec.kernel_id
        yield f"engine `{engine.name}` does not bind `{bound}` of `{axis.name}` yet"
    if is_window(axis):
        return  # the runtime bounds the edges
    if axis.role is WorldRole.NO_RANKS:
        yield f"the runtime does not execute `{axis.name}` yet"
    elif axis.role is WorldRole.MULTIPLIES_REPLICAS:
        return  # the router carries out every policy
    elif item.is_asked_for and axis.name not in engine.executes:
        yield f"engine `{engine.name}` does not execute `{axis.name}` yet"


def is_window(axis: Axis) -> bool:
    """Whether it bounds what is in flight on the edges of a stage, in the unit that it is told."""
    is_counted = any(item.name == "unit" for item in fields(axis.options))
    return axis.role is WorldRole.NO_RANKS and is_counted


def _of_windows(context: RuleContext) -> Iterator[str]:
    """Say which bounds are on edges that there are none of."""
    feeding = {edge.source for edge in context.edges}
    for draft in context.drafts:
        for item in draft.stack.axes:
            if is_window(item.axis) and draft.stage_id not in feeding:
                yield (
                    f"`{draft.stage.model_stage}`: `{item.axis.name}` bounds nothing where no stage"
                    " is fed"
                )


def _of_setup(draft: StageDraft, ruled: Ruling) -> Iterator[str]:
    """What the processes of a stage would need around the engine."""
    name, stage_id = draft.stage.model_stage, draft.stage_id
    runner, executor = ruled.runners[stage_id], ruled.executors[stage_id]
    if runner != "v1" and "model_runner" in draft.choice.stage_args:
        yield f"`{name}`: no engine has model runner `{runner}` yet"
    if executor == "external_launcher":
        yield f"`{name}`: nothing starts ranks by `{executor}` yet"


def _of_edges(context: RuleContext) -> Iterator[str]:
    names = {draft.stage_id: draft.stage.model_stage for draft in context.drafts}
    specs = {spec.name: spec for spec in context.catalog.connectors.values()}
    for edge in context.edges:
        waiting = specs[edge.connector].planning_only
        if waiting is not None:
            yield f"`{names[edge.source]}` -> `{names[edge.target]}`: {waiting}"


def _of_pipeline(context: RuleContext, ruled: Ruling) -> Iterator[str]:
    duplex = None if ruled.session is None else ruled.session.duplex
    if duplex is not None:
        yield from _of_sessions(context, duplex)
    elif num_frontends(context) > 1:
        yield "several frontends divide full-duplex sessions, and here requests take turns"
    if ruled.weight_transfer is not None:
        yield "nothing replaces weights while stages run yet"


def _of_sessions(context: RuleContext, duplex: DuplexPlan) -> Iterator[str]:
    """Say which engines keep nothing from turn to turn, and what nothing does around them."""
    for draft in context.drafts:
        spec = draft.choice.spec
        if spec is not None and not spec.keeps_sessions:
            yield f"`{draft.stage.model_stage}`: engine `{spec.name}` keeps no sessions yet"
    if duplex.server_vad_model_path is not None:
        yield "nothing finds out yet where speech begins and ends (`server_vad_model_path`)"
    if duplex.warmup_frames > 0:
        yield "nothing warms replicas up before the first session yet (`warmup_frames`)"
