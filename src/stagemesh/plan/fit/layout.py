"""Another layout for the same settings: sizes of axes, and devices that are left to the planner.

Options that are numbers of ranks (`sharing` of an axis) are sizes as well, named `axis.option`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Final, TypeAlias

from stagemesh.config.settings import AxisSettings, Settings, Sourced, StageSettings
from stagemesh.plan.pins import DEVICES
from stagemesh.spec.axis import Axis
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer, Origin

Sizes: TypeAlias = Mapping[str, int]
"""Numbers of ranks, of axes by name and of their options as `axis.option`."""

_DOT: Final = "."
_ORIGIN: Final = Origin(layer=Layer.STRATEGY, source="--fit")


@frozen
class Change:
    """What is different about one stage."""

    sizes: Sizes = field(default_factory=dict)
    """Axes and options that get this size; axes that were not declared are added."""
    freed: bool = False
    """Whether its list of devices no longer binds it."""


def changed(
    settings: Settings, changes: Mapping[int, Change], axes: Mapping[str, Axis]
) -> Settings:
    """Return the settings with some stages laid out in another way."""
    return replace(
        settings,
        stages=tuple(
            changed_stage(stage, changes[stage.stage_id], axes)
            if stage.stage_id in changes
            else stage
            for stage in settings.stages
        ),
    )


def changed_stage(
    stage: StageSettings, change: Change, declared: Mapping[str, Axis]
) -> StageSettings:
    """Return the settings of one stage laid out in another way."""
    fields = stage.fields
    if change.freed:
        fields = {name: value for name, value in fields.items() if name != DEVICES}
    axes = dict(stage.axes)
    for name, to in change.sizes.items():
        axis, option = parted(name)
        given = axes.get(axis)
        if given is None:
            given = AxisSettings(axis=axis, size=None, label=axis, origin=_ORIGIN)
        axes[axis] = _shared(given, option, to) if option else _sized(given, declared[axis], to)
    return replace(stage, axes=axes, fields=fields)


def shared_by(axis: str, option: str) -> str:
    """Return the name of an option that is a number of ranks."""
    return f"{axis}{_DOT}{option}"


def parted(name: str) -> tuple[str, str]:
    """Part the name of a size into its axis and the option, which is empty for the axis itself."""
    axis, _, option = name.partition(_DOT)
    return axis, option


def _shared(given: AxisSettings, option: str, size: int) -> AxisSettings:
    """Give an option of an axis another number of ranks."""
    said = given.options.get(option)
    origin = given.origin if said is None else said.origin
    value: Sourced[object] = Sourced(value=size, origin=origin)
    return replace(given, options={**given.options, option: value})


def _sized(given: AxisSettings, axis: Axis, size: int) -> AxisSettings:
    """Give an axis another size; what was said about the old one no longer holds."""
    origin = given.origin if given.size is None else given.size.origin
    return replace(
        given,
        size=Sourced(value=size, origin=origin),
        options={
            name: value for name, value in given.options.items() if name not in axis.about_size
        },
    )
