"""What the machines of the core have to know of a plan: stages, routes, slots and windows."""

from __future__ import annotations

from typing import Final, cast

from stagemesh.plan.values import EdgePlan, Plan, StagePlan
from stagemesh.runtime.core.actions import REQUEST_ID, StageShape
from stagemesh.runtime.core.credits import Limits
from stagemesh.runtime.core.router import RouterOptions
from stagemesh.runtime.core.windows import StageWindow
from stagemesh.spec.axis import WorldRole
from stagemesh.spec.patterns import Policy

_SLOTS: Final = "max_num_seqs"
"""The engine argument that says how many requests a replica serves at a time."""
_AHEAD: Final = 2
"""Times its slots that a replica is sent, so that it never waits for the caller."""


def shapes_of(plan: Plan) -> tuple[StageShape, ...]:
    """The stages of a plan."""
    return tuple(_shape(plan, stage) for stage in plan.stages)


def room_of(stage: StagePlan) -> tuple[int, int | None]:
    """Requests that a replica serves at a time, and how many it is sent.

    An engine without such a number counts as one slot, and is sent everything.
    """
    slots = stage.engine_args.get(_SLOTS)
    return (slots, _AHEAD * slots) if isinstance(slots, int) else (1, None)


def limits_of(plan: Plan, stage: StagePlan, target: int) -> Limits:
    """What every edge of a stage to a replica of `target` may carry at a time."""
    bounds: dict[str, list[int]] = {"requests": [], "chunks": []}
    for axis in stage.axes:
        unit = axis.options.get("unit")
        if axis.role == WorldRole.NO_RANKS.value and unit is not None:
            bounds[str(unit)].append(axis.size)
    for edge in plan.edges:
        if (edge.source, edge.target) == (stage.stage_id, target) and edge.max_inflight is not None:
            bounds["requests"].append(edge.max_inflight)
    if not any(bounds.values()):
        return Limits()
    return Limits(
        window=StageWindow(
            requests=min(bounds["requests"], default=None),
            chunks=min(bounds["chunks"], default=None),
        )
    )


def streams_of(plan: Plan, stage: StagePlan) -> int:
    """Streams that a replica serves at a time; `0` for all of them, as where none is chunked."""
    is_fed = any(edge.chunked and edge.target == stage.stage_id for edge in plan.edges)
    return plan.active_stream_window if is_fed else 0


def together_on(edge: EdgePlan) -> int | None:
    """Outputs of one request that are handed over together on an edge; `None` for all of them."""
    size = 1 if edge.window_size is None else edge.window_size
    return size if edge.chunked and size > 0 else None


def _shape(plan: Plan, stage: StagePlan) -> StageShape:
    feeds = [edge for edge in plan.edges if edge.source == stage.stage_id]
    options = {
        name: value
        for axis in stage.axes
        if axis.role == WorldRole.MULTIPLIES_REPLICAS.value
        for name, value in axis.options.items()
        if value is not None
    }
    policy = RouterOptions(policy=Policy(stage.policy))
    if "load_bound" in options:
        bound = float(cast("float", options["load_bound"]))
        policy = RouterOptions(policy=policy.policy, load_bound=bound)
    return StageShape(
        stage=stage.stage_id,
        name=stage.name,
        is_entry=not any(edge.target == stage.stage_id for edge in plan.edges),
        is_final=stage.final_output_type is not None,
        chunks_to=tuple(edge.target for edge in feeds if edge.chunked),
        whole_to=tuple(edge.target for edge in feeds if not edge.chunked),
        key=str(options.get("key", REQUEST_ID)),
        routing=policy,
        unit=_unit(plan, stage),
    )


def _unit(plan: Plan, stage: StagePlan) -> int | None:
    """The stage in whose processes it runs, be it itself, where others run in them, too."""
    hosts = {each.setup.host for each in plan.stages}
    return stage.stage_id if stage.stage_id in hosts else stage.setup.host
