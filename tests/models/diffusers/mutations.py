"""Plans with one mistake each: a path, a dimension, a style or a role."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from stagemesh.spec.model_plan import (
    Gather,
    HeadTable,
    ModelPlan,
    SiteRole,
    Split,
    TpStyle,
)

PARTS = ("splits", "gathers", "sites", "tp", "attributes", "tables")
_DIMS = range(3)


def mutations(plan: ModelPlan) -> Iterator[tuple[str, ModelPlan]]:
    """What is wrong, and the plan with it."""
    for part in PARTS:
        entries = vars_of(plan, part)
        for index, entry in enumerate(entries):
            for what, wrong in _wrong(entry):
                changed: Any = {part: (*entries[:index], wrong, *entries[index + 1 :])}
                yield f"{part} {entry.module}: {what}", replace(plan, **changed)


def vars_of(plan: ModelPlan, part: str) -> tuple[Any, ...]:
    """Return the entries of a part."""
    found: tuple[Any, ...] = getattr(plan, part)
    return found


def _wrong(entry: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  one of six kinds
    yield "path", replace(entry, module=f"{entry.module}x")
    if isinstance(entry, Split | Gather | HeadTable):
        rank = entry.rank if isinstance(entry, Split | Gather) else None
        for dim in _DIMS[:rank]:
            if dim != entry.dim:
                yield f"dimension {dim}", replace(entry, dim=dim)
        return
    if hasattr(entry, "style"):
        for style in TpStyle:
            if style is not entry.style:
                blocks = () if style is TpStyle.NORM else entry.blocks
                yield (
                    f"style {style.value}",
                    replace(entry, style=style, blocks=blocks, copies=False),
                )
    elif hasattr(entry, "role"):
        for role in (SiteRole.LOCAL, SiteRole.SELF):
            if role is not entry.role and (entry.streams or role is SiteRole.LOCAL):
                streams = () if role is SiteRole.LOCAL else entry.streams
                yield f"role {role.value}", replace(entry, role=role, streams=streams, whole=())
