"""A plan with more or fewer replicas of one stage. Pure; the replicas that stay keep their places.

New ones are placed by the planner's own rules: on the devices of the plan, where memory and shares
leave room, and never beyond the devices that a stage is bound to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from stagemesh.config.settings import Sourced
from stagemesh.errors import DiagnosticError
from stagemesh.plan.devices import Devices
from stagemesh.plan.place import place
from stagemesh.plan.report import Report
from stagemesh.plan.values import Plan, RankPlan, ReplicaPlan, StagePlan
from stagemesh.plan.wish import DeviceIds, Wish
from stagemesh.spec.axis import WorldRole
from stagemesh.spec.diagnostic import Diagnostic, did_you_mean
from stagemesh.spec.origin import Layer, Origin

_JOINING: Final = -1
"""Stands for the new replicas among the stages that are placed."""
_MOST: Final = 10_000
_DEVICES: Final = "devices"


def scaled(plan: Plan, name: object, num_replicas: object) -> Plan:
    """Return the plan with so many replicas of a stage.

    Raises `DiagnosticError` with everything that speaks against it.
    """
    stage = next((each for each in plan.stages if each.name == name), None)
    if stage is None:
        message = f"the model has no stage `{name}`"
        help_text = did_you_mean(str(name), [each.name for each in plan.stages])
        raise DiagnosticError([Diagnostic(code="RT001", message=message, help=help_text)])
    if type(num_replicas) is not int or not 0 < num_replicas <= _MOST:
        message = f"a stage has `1` to `{_MOST}` replicas: got `{num_replicas!r:.40}`"
        raise DiagnosticError([Diagnostic(code="RT040", message=message)])
    bound = _bound(plan, stage)
    if bound is not None and num_replicas != len(stage.replicas):
        message = f"the replicas of `{stage.name}` stay as many as they are: {bound}"
        help_text = "start the system again with as many as you want"
        raise DiagnosticError([Diagnostic(code="RT041", message=message, help=help_text)])
    placed = _placed(plan, stage, num_replicas)
    kept = stage.replicas[:num_replicas]
    joining = tuple(
        _replica(index, ids, stage)
        for index, ids in enumerate(placed[len(kept) :], start=len(kept))
    )
    changed = replace(
        stage,
        replicas=(*kept, *joining),
        axes=tuple(
            replace(axis, size=num_replicas)
            if axis.role == WorldRole.MULTIPLIES_REPLICAS.value
            else axis
            for axis in stage.axes
        ),
    )
    return replace(plan, stages=tuple(changed if each is stage else each for each in plan.stages))


def _bound(plan: Plan, stage: StagePlan) -> str | None:
    """Say what ties replicas to something that cannot grow with them."""
    if plan.session.duplex is not None:
        return "sessions are placed on groups of them"
    mps = stage.setup.mps
    if stage.setup.numa is not None or (mps is not None and mps.off_because is None):
        return "each is bound to NUMA nodes or to an MPS daemon"
    return None


def _placed(plan: Plan, stage: StagePlan, num_replicas: int) -> tuple[DeviceIds, ...]:
    """Device ids of all replicas of the stage, those that there are first."""
    here = _places(stage)
    if num_replicas <= len(here):
        return here[:num_replicas]
    wishes = [
        _wish(each, len(each.replicas), placed=_places(each))
        for each in plan.stages
        if each is not stage
    ]
    listed = stage.values.get(_DEVICES)
    if listed is not None and isinstance(listed.value, str) and not listed.is_default:
        origin = Origin(layer=Layer[listed.layer.upper()], source=listed.origin)
        bound = Sourced(value=listed.value, origin=origin)
        wishes.append(replace(_wish(stage, num_replicas), listed=bound))
    else:
        wishes.append(_wish(stage, len(here), placed=here))
        joining = _wish(stage, num_replicas - len(here))
        wishes.append(replace(joining, stage_id=_JOINING))
    report = Report()
    devices = Devices(
        kind=plan.devices.kind,
        count=plan.devices.count,
        memory_bytes=plan.devices.memory_bytes,
        imaginary=plan.devices.imaginary,
        ids=plan.devices.ids,
    )
    placement = place(wishes, devices, report)
    if report.failed:
        raise DiagnosticError(report.diagnostics)
    return placement.replicas[stage.stage_id] + placement.replicas.get(_JOINING, ())


def _wish(stage: StagePlan, num_replicas: int, placed: tuple[DeviceIds, ...] | None = None) -> Wish:
    memory, share = stage.memory, stage.setup.share
    return Wish(
        stage_id=stage.stage_id,
        stage=stage.name,
        world=stage.world_size,
        num_replicas=num_replicas,
        listed=None,
        rank_bytes=None if memory is None else memory.total,
        share=None if share is None else share.share,
        placed=placed,
    )


def _places(stage: StagePlan) -> tuple[DeviceIds, ...]:
    return tuple(tuple(rank.device for rank in each.ranks) for each in stage.replicas)


def _replica(index: int, ids: DeviceIds, stage: StagePlan) -> ReplicaPlan:
    """Ranks of a new replica have the coordinates that those of the others have."""
    ranks = zip(ids, stage.replicas[0].ranks, strict=True)
    return ReplicaPlan(
        index=index,
        ranks=tuple(
            RankPlan(rank=like.rank, device=device, coords=like.coords) for device, like in ranks
        ),
    )
