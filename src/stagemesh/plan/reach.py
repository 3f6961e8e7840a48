"""An axis that a flag lays over all stages passes by those whose network cannot have it.

Which axes a stage can have at all is known before the checkpoint is; whether it has experts, or
takes guidance, only afterwards. Where no stage can have the axis it stays, so that its own rule
says why. An axis that anything else asks for stays too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stagemesh.config.settings import AxisSettings, Settings, StageSettings
from stagemesh.spec.axis import Axis
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.origin import Layer


def reaching(
    settings: Settings, facts: Mapping[str, StageFacts], axes: Mapping[str, Axis]
) -> Settings:
    """Take the axes of flags for all stages from the stages that cannot have them."""

    def is_possible(stage: StageSettings, axis: str) -> bool:
        return axes[axis].is_possible(facts.get(stage.name, StageFacts()))

    useful = {
        name
        for stage in settings.stages
        for name in stage.axes
        if _is_of_all(stage.axes[name]) and is_possible(stage, name)
    }
    return replace(
        settings,
        stages=tuple(
            replace(
                stage,
                axes={
                    name: given
                    for name, given in stage.axes.items()
                    if name not in useful or not _is_of_all(given) or is_possible(stage, name)
                },
            )
            for stage in settings.stages
        ),
    )


def _is_of_all(given: AxisSettings) -> bool:
    """Whether a flag for all stages is alone in asking for the axis."""
    size = given.size
    said = [given.origin, *(each.origin for each in given.options.values())]
    if size is not None:
        said += [size.origin, *(each.origin for each in size.superseded if each.value > 1)]
    return all(origin.layer is Layer.GLOBAL for origin in said)
