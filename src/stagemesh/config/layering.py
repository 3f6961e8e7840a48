"""What a strategy may meet in other layers: it is the single writer of the axes that it declares.

A different explicit value in a deploy file is an error that names both places; what was typed for
this one start wins, with a warning that does the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from stagemesh.config.merge import merge
from stagemesh.config.patch import Patch
from stagemesh.config.settings import Sourced
from stagemesh.config.stages import Stages
from stagemesh.config.tree import quoted
from stagemesh.spec.axis import Axis
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity
from stagemesh.spec.origin import Layer
from stagemesh.spec.unset import UNSET


def meet_strategy(
    patches: Sequence[Patch], stages: Stages, axes: Mapping[str, Axis]
) -> Iterator[Diagnostic]:
    """Compare what the strategy says about axes with the layers below and above it."""
    below = merge((patch for patch in patches if patch.origin.layer < Layer.STRATEGY), [])
    above = [patch for patch in patches if patch.origin.layer.is_command_line]
    for patch in patches:
        if patch.origin.layer is not Layer.STRATEGY or patch.value is UNSET:
            continue
        if patch.path[-1] not in _COMPARED or patch.stage_id is None:
            continue
        root = below.get(patch.stage_id)
        lower = root.at(*patch.path) if root is not None else None
        if isinstance(lower, Sourced) and lower.value not in (UNSET, patch.value):
            yield _conflict(patch, lower, stages, axes)
        winner = _winner(patch, above)
        if winner is not None and winner.value not in (UNSET, patch.value):
            yield _replaced(patch, winner, stages)


_COMPARED = ("size", "enabled")


def _winner(patch: Patch, above: Iterable[Patch]) -> Patch | None:
    """Return the last patch of higher layers that sets or clears the same path."""
    same = [
        other
        for other in above
        if other.stage_id == patch.stage_id
        and (other.path == patch.path or (other.value is None and other.path == patch.path[:-1]))
    ]
    ranked = sorted(same, key=lambda other: other.origin.layer)
    if not ranked or (ranked[-1].value is None and patch.path[-1] == "enabled"):
        return None  # a cleared axis is told once, at its size
    return ranked[-1]


def _conflict(
    patch: Patch, lower: Sourced[object], stages: Stages, axes: Mapping[str, Axis]
) -> Diagnostic:
    axis = str(patch.path[1])
    field = next((sets.name for sets in axes[axis].deploy_fields), axis)
    here, there = quoted(patch.value), quoted(lower.value)
    return Diagnostic(
        code="AX006",
        message=f"{_name(patch, stages)} is {here} here and {there} in the deploy file",
        origin=patch.origin,
        notes=(Note(message=f"`{field}` is set to {there} here", origin=lower.origin),),
        help=f"remove `{field}` there or the `{axis}` entry here; only one of them may decide",
    )


def _replaced(patch: Patch, winner: Patch, stages: Stages) -> Diagnostic:
    change = "cleared" if winner.value is None else f"replaced by {quoted(winner.value)}"
    return Diagnostic(
        code="AX007",
        severity=Severity.WARNING,
        message=f"{_name(patch, stages)} of the strategy, {quoted(patch.value)}, is {change}",
        origin=winner.origin,
        notes=(Note(message=f"the strategy says {quoted(patch.value)} here", origin=patch.origin),),
    )


def _name(patch: Patch, stages: Stages) -> str:
    stage = stages.numbered(patch.stage_id if patch.stage_id is not None else -1)
    _, axis, member = patch.path
    name = stage.model_stage if stage is not None else "?"
    return f"`{name}.{axis}`" if member == "enabled" else f"`{name}.{axis}.{member}`"
