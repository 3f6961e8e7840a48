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
    """Return the plan with so many replicas of a stage, and of those that share its processes.

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
    unit = [each for each in plan.stages if _process(each) == _process(stage)]
    bound = next(filter(None, (_bound(plan, each) for each in unit)), None)
    if bound is not None and num_replicas != len(stage.replicas):
        message = f"the replicas of `{stage.name}` stay as many as they are: {bound}"
        help_text = "start the system again with as many as you want"
        raise DiagnosticError([Diagnostic(code="RT041", message=message, help=help_text)])
    placed = _placed(plan, unit, num_replicas)
    changed = {each.stage_id: _changed(each, placed) for each in unit}
    return replace(plan, stages=tuple(changed.get(each.stage_id, each) for each in plan.stages))


def _process(stage: StagePlan) -> int:
    """The stage in whose processes it runs."""
    return stage.stage_id if stage.setup.host is None else stage.setup.host


def _changed(stage: StagePlan, placed: tuple[DeviceIds, ...]) -> StagePlan:
    """The stage with replicas there."""
    kept = stage.replicas[: len(placed)]
    joining = tuple(
        _replica(index, ids, stage)
        for index, ids in enumerate(placed[len(kept) :], start=len(kept))
    )
    return replace(
        stage,
        replicas=(*kept, *joining),
        axes=tuple(
            replace(axis, size=len(placed))
            if axis.role == WorldRole.MULTIPLIES_REPLICAS.value
            else axis
            for axis in stage.axes
        ),
    )


def _bound(plan: Plan, stage: StagePlan) -> str | None:
    """Say what ties replicas to something that cannot grow with them."""
    if plan.session.duplex is not None:
        return "sessions are placed on groups of them"
    mps = stage.setup.mps
    if stage.setup.numa is not None or (mps is not None and mps.off_because is None):
        return "each is bound to NUMA nodes or to an MPS daemon"
    return None


def _placed(plan: Plan, unit: list[StagePlan], num_replicas: int) -> tuple[DeviceIds, ...]:
    """Device ids of all replicas of stages that share processes, those that there are first."""
    stage, here = unit[0], _places(unit[0])
    if num_replicas <= len(here):
        return here[:num_replicas]
    wishes = [
        _wish(each, len(each.replicas), placed=_places(each))
        for each in plan.stages
        if each not in unit
    ]
    joining = replace(
        _wish(stage, num_replicas - len(here)),
        stage_id=_JOINING,
        guests=tuple(_wish(each, num_replicas - len(here)) for each in unit[1:]),
    )
    bound = next(filter(None, map(_listed, unit)), None)
    if bound is not None:
        whole = replace(joining, stage_id=stage.stage_id, num_replicas=num_replicas)
        wishes.append(replace(whole, listed=bound))
    else:
        wishes += [_wish(each, len(here), placed=here) for each in unit]
        wishes.append(joining)
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


def _listed(stage: StagePlan) -> Sourced[str] | None:
    """The devices that a stage is bound to."""
    listed = stage.values.get(_DEVICES)
    if listed is None or not isinstance(listed.value, str) or listed.is_default:
        return None
    origin = Origin(layer=Layer[listed.layer.upper()], source=listed.origin)
    return Sourced(value=listed.value, origin=origin)


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
