"""What was said about axes that their switch leaves off, as `use_hsdp` does `hsdp`.

A default says nothing, and who switches an axis off in a higher layer means its options too, unless
both were typed for the same start. What a flag says of all stages counts where one has the axis on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from stagemesh.config.merge import Branch
from stagemesh.config.settings import Sourced, StageSettings
from stagemesh.spec.axis import ENABLED, Axis
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Origin
from stagemesh.spec.pipeline import PipelineConfig, StagePipelineConfig

_CODE: Final = "AX010"
_MISFIT: Final = "AX020"


def spoils(found: Diagnostic) -> bool:
    """Whether the settings cannot be relied on beside it: what nothing acts on changes nothing."""
    return found.is_error and found.code not in (_CODE, _MISFIT)


@frozen
class _Lost:
    """An option of one stage on which nothing acts."""

    stage: str
    """The stage."""
    axis: Axis
    """The axis that is off."""
    option: str
    """Its option."""
    given: Origin
    """Where that was written."""
    off: Origin | None
    """Where the axis was switched off, if it was."""


def off_findings(
    stages: Iterable[StageSettings],
    roots: Mapping[int | None, Branch],
    pipeline: PipelineConfig,
    declared: Mapping[str, Axis],
) -> Iterator[Diagnostic]:
    """Tell of every such option; of one that several stages have, once.

    That an axis fits no such stage is told also where it is left off.
    """
    stages = tuple(stages)
    misfits: dict[tuple[str, str], Diagnostic] = {}
    for declaration in pipeline.stages:
        root = roots.get(declaration.stage_id)
        for axis, origin in () if root is None else _left_off(root, declared):
            found = misfit(axis, declaration, origin)
            if found is not None:
                misfits.setdefault((declaration.model_stage, axis.name), found)
    acting = {
        given.origin
        for stage in stages
        for axis in stage.axes.values()
        for given in axis.options.values()
    }
    lost: dict[Origin, list[_Lost]] = {}
    for stage in stages:
        root = roots.get(stage.stage_id)
        for each in () if root is None else _lost(stage, root, declared):
            if each.given not in acting and (stage.name, each.axis.name) not in misfits:
                lost.setdefault(each.given, []).append(each)
    yield from (_told(*group) for group in lost.values())
    yield from misfits.values()


def misfit(axis: Axis, stage: StagePipelineConfig, origin: Origin | None) -> Diagnostic | None:
    """Say why an axis does not fit a stage, if it does not."""
    name, kind = stage.model_stage, stage.execution_type
    if axis.name in stage.excludes:
        whose, help_text = f"stage `{name}`", stage.excludes[axis.name]
    elif kind not in axis.fits:
        fitting = ", ".join(sorted(f"`{fit.value}`" for fit in axis.fits))
        whose = f"`{kind.value}` stage `{name}`"
        help_text = f"`{axis.name}` fits stages of kind {fitting}"
    else:
        return None
    message = f"`{axis.name}` does not fit the {whose}"
    return Diagnostic(code=_MISFIT, message=message, origin=origin, help=help_text)


def _left_off(root: Branch, declared: Mapping[str, Axis]) -> Iterator[tuple[Axis, Origin]]:
    """Return the axes about which something was said that leaves them off, and where."""
    axes = root.children.get("axes")
    for name, node in axes.children.items() if isinstance(axes, Branch) else ():
        assert isinstance(node, Branch)
        axis, off = declared[str(name)], node.children.get(ENABLED)
        options = node.children.get("options")
        if isinstance(off, Sourced) and off.value is False:
            yield axis, off.origin
        elif off is None and isinstance(options, Branch) and axis.switch not in root.children:
            said = (each for each in options.children.values() if isinstance(each, Sourced))
            yield from ((axis, each.origin) for each in said if not each.clears)


def _lost(stage: StageSettings, root: Branch, declared: Mapping[str, Axis]) -> Iterator[_Lost]:
    axes = root.children.get("axes")
    for name, node in axes.children.items() if isinstance(axes, Branch) else ():
        axis = declared[str(name)]
        # where the switch is a field of its own, its value was refused
        if axis.switch is None or name in stage.axes or axis.switch in root.children:
            continue
        assert isinstance(node, Branch)
        off, options = node.children.get(ENABLED), node.children.get("options")
        place = off.origin if isinstance(off, Sourced) else None
        for option, given in options.children.items() if isinstance(options, Branch) else ():
            if not isinstance(given, Sourced) or given.value == _default(axis, str(option)):
                continue
            if place is None or not place.layer.takes_back(given.origin.layer):
                yield _Lost(
                    stage=stage.name, axis=axis, option=str(option), given=given.origin, off=place
                )


def _told(lost: _Lost, *others: _Lost) -> Diagnostic:
    axis = lost.axis
    field = axis.field_for(lost.option) or lost.option
    why = "is not given" if lost.off is None else "is `false`"
    here = Note(message=f"`{axis.switch}` is set here", origin=lost.off)
    return Diagnostic(
        code=_CODE,
        message=f"`{field}` of `{lost.stage}` has no effect: `{axis.switch}` {why}",
        origin=lost.given,
        notes=(
            *((here,) if lost.off is not None else ()),
            *(
                Note(message=f"nor has that of `{other.stage}`", origin=other.off)
                for other in others
            ),
        ),
        help=f"write `{axis.switch}: true`, or leave `{field}` out",
    )


def _default(axis: Axis, option: str) -> object:
    return next(item.default for item in dataclasses.fields(axis.options) if item.name == option)
