"""Another layout for the same settings: sizes of axes, and devices that are left to the planner."""

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
"""Sizes of axes by name."""

_ORIGIN: Final = Origin(layer=Layer.STRATEGY, source="--fit")


@frozen
class Change:
    """What is different about one stage."""

    sizes: Sizes = field(default_factory=dict)
    """Axes that get this size; those that were not declared are added."""
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
    sized = {name: _sized(stage, declared[name], to) for name, to in change.sizes.items()}
    return replace(stage, axes={**stage.axes, **sized}, fields=fields)


def _sized(stage: StageSettings, axis: Axis, size: int) -> AxisSettings:
    """Give an axis another size; what was said about the old one no longer holds."""
    given = stage.axes.get(axis.name)
    if given is None:
        given = AxisSettings(axis=axis.name, size=None, label=axis.name, origin=_ORIGIN)
    origin = given.origin if given.size is None else given.size.origin
    return replace(
        given,
        size=Sourced(value=size, origin=origin),
        options={
            name: value for name, value in given.options.items() if name not in axis.about_size
        },
    )
