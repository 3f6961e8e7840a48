"""Another layout for the same settings: sizes of axes, and devices that are left to the planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Final, TypeAlias

from stagemesh.config.settings import AxisSettings, Settings, Sourced, StageSettings
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer, Origin

Sizes: TypeAlias = Mapping[str, int]
"""Sizes of axes by name."""

DEVICES: Final = "devices"
"""The stage field that binds a stage to devices."""
_ORIGIN: Final = Origin(layer=Layer.STRATEGY, source="--fit")


@frozen
class Change:
    """What is different about one stage."""

    sizes: Sizes = field(default_factory=dict)
    """Axes that get this size; those that were not declared are added."""
    freed: bool = False
    """Whether its list of devices no longer binds it."""


def changed(settings: Settings, changes: Mapping[int, Change]) -> Settings:
    """Return the settings with some stages laid out in another way."""
    return replace(
        settings,
        stages=tuple(
            changed_stage(stage, changes[stage.stage_id]) if stage.stage_id in changes else stage
            for stage in settings.stages
        ),
    )


def changed_stage(stage: StageSettings, change: Change) -> StageSettings:
    """Return the settings of one stage laid out in another way."""
    fields = stage.fields
    if change.freed:
        fields = {name: value for name, value in fields.items() if name != DEVICES}
    axes = {**stage.axes, **{name: _sized(stage, name, to) for name, to in change.sizes.items()}}
    return replace(stage, axes=axes, fields=fields)


def _sized(stage: StageSettings, axis: str, size: int) -> AxisSettings:
    given = stage.axes.get(axis)
    if given is None:
        given = AxisSettings(axis=axis, size=None, label=axis, origin=_ORIGIN)
    origin = given.origin if given.size is None else given.size.origin
    return replace(given, size=Sourced(value=size, origin=origin))
