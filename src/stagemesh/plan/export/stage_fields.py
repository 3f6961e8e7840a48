"""An axis of a plan as the stage fields that say the same in a deploy file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.plain import plain_fields
from stagemesh.plan.values import AxisPlan, StagePlan
from stagemesh.spec.axis import ENABLED, SIZE, Axis, DeployField
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import ExecutionType

ROUTING: Final = "routing"
"""The member of an axis that is its policy."""
LABEL: Final = "name"
"""The member of an axis that is its label."""
BINDINGS: Final = ("layer_hook_specs", "kernel_specs")
"""Members of an axis that hold hooks and kernels besides its own; no field says them."""


@frozen
class AxisFields:
    """What can be said in stage fields, and what cannot."""

    fields: Mapping[str, object] = field(default_factory=dict)
    """Stage fields with their values."""
    unsaid: tuple[str, ...] = ()
    """Members of the axis that differ from their default and that no field says."""


def axis_fields(
    axis: AxisPlan, declared: Axis, *, spelled_out_for: ExecutionType | None = None
) -> AxisFields:
    """Return the fields of one axis; routing and label are told as unsaid where they were chosen.

    `spelled_out_for` a kind of stage are options at their default as well, for a reader with other
    defaults.
    """
    defaults = plain_fields(declared.options())
    differing = {name for name, value in axis.options.items() if value != defaults[name]}
    named = {
        sets.member
        for sets in declared.deploy_fields
        if spelled_out_for in (sets.fits or declared.fits)
    }
    open_to = differing | {name for name in named if axis.options.get(name) is not None}
    said: dict[str, object] = {}
    open_members = {SIZE, *open_to}
    for sets in declared.deploy_fields:
        if _agrees(sets, axis) and sets.member in {*open_members, ENABLED}:
            said[sets.name] = _value(sets, axis)
            open_members -= {sets.member, *sets.implies}
            if sets.member == ENABLED:
                open_members.discard(SIZE)
    usual = plain_fields(declared.routing)
    if {**axis.routing.args} != usual:
        open_members.add(ROUTING)
    if axis.label != axis.axis:
        open_members.add(LABEL)
    return AxisFields(fields=said, unsaid=tuple(sorted(open_members)))


def device_list(stage: StagePlan) -> str:
    """Return the devices of all replicas in order, as the field `devices` lists them."""
    return ",".join(str(rank.device) for replica in stage.replicas for rank in replica.ranks)


def engine_defaults(stage: StagePlan, catalog: Catalog) -> Mapping[str, object]:
    """Return the arguments that the stage's engine has when nothing is said."""
    spec = catalog.engines.get(stage.engine)
    return {} if spec is None else plain_fields(spec.options())


def _agrees(sets: DeployField, axis: AxisPlan) -> bool:
    """Whether what the field implies is what the axis says, and it implies all that it must."""
    return all(axis.options.get(name) == value for name, value in sets.implies.items())


def _value(sets: DeployField, axis: AxisPlan) -> object:
    if sets.member == SIZE:
        return axis.size
    return True if sets.member == ENABLED else axis.options[sets.member]
