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
from stagemesh.config.tree import Path, quoted
from stagemesh.spec.axis import ENABLED, SIZE, Axis
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.unset import UNSET


def meet_strategy(
    patches: Sequence[Patch], stages: Stages, axes: Mapping[str, Axis]
) -> Iterator[Diagnostic]:
    """Compare what the strategy says about axes with the layers below and above it."""
    below = merge((patch for patch in patches if patch.origin.layer < Layer.STRATEGY), [])
    above = [patch for patch in patches if patch.origin.layer.is_command_line]
    told: set[tuple[object, ...]] = set()  # a field may set several members: one cause, one finding
    for patch in patches:
        if patch.origin.layer is not Layer.STRATEGY or patch.value is UNSET:
            continue
        if patch.stage_id is None or not _is_compared(patch.path):
            continue
        root = below.get(patch.stage_id)
        lower = root.at(*patch.path) if root is not None else None
        if (
            isinstance(lower, Sourced)
            and lower.value not in (UNSET, patch.value)
            and _is_news(patch, lower.origin, told)
        ):
            yield _conflict(patch, lower, stages, axes)
        winner = _winner(patch, above)
        if (
            winner is not None
            and winner.value not in (UNSET, patch.value)
            and _is_news(patch, winner.origin, told)
        ):
            yield _replaced(patch, winner, stages)


def _is_compared(path: Path) -> bool:
    """Whether a path is that of the size of an axis, of its switch, or of one of its options."""
    return path[2:] in ((SIZE,), (ENABLED,)) or path[2:3] == ("options",)


def _is_news(patch: Patch, other: Origin, told: set[tuple[object, ...]]) -> bool:
    key = (patch.stage_id, patch.path[1], other)
    is_news = key not in told
    told.add(key)
    return is_news


def _winner(patch: Patch, above: Iterable[Patch]) -> Patch | None:
    """Return the last patch of higher layers that sets or clears the same path."""
    same = [
        other
        for other in above
        if other.stage_id == patch.stage_id
        and (other.path == patch.path or (other.value is None and other.path == patch.path[:2]))
    ]
    ranked = sorted(same, key=lambda other: other.origin.layer)
    cleared_axis = bool(ranked) and ranked[-1].path != patch.path
    if not ranked or (cleared_axis and patch.path[-1] != SIZE):
        return None  # a cleared axis is told once, at its size
    return ranked[-1]


def _conflict(
    patch: Patch, lower: Sourced[object], stages: Stages, axes: Mapping[str, Axis]
) -> Diagnostic:
    axis = str(patch.path[1])
    field = axes[axis].field_for(str(patch.path[-1])) or axis
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
    axis, member = patch.path[1], patch.path[-1]
    name = stage.model_stage if stage is not None else "?"
    return f"`{name}.{axis}`" if member == ENABLED else f"`{name}.{axis}.{member}`"
