"""Which axes the plans of networks cut: the support matrix, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, cast

from stagemesh.spec.axis import Axis
from stagemesh.spec.cost import Part
from stagemesh.spec.model_plan import ModelPlan
from stagemesh.spec.pipeline import ExecutionType, PipelineConfig
from stagemesh.spec.reference import resolve
from stagemesh.spec.vae_plan import VaePlan

_Plan: TypeAlias = ModelPlan | VaePlan

_OWN: Final = frozenset({Part.REQUESTS, Part.EXPERTS})
"""Parts that need no plan of a network, or that no plan speaks of."""


def listed_plans(
    pipelines: Iterable[PipelineConfig], axes: Iterable[Axis]
) -> list[dict[str, object]]:
    """Every plan of every model, each once, with the axes that it can be run under."""
    cutting = _cutting(axes)
    references = dict.fromkeys(each.plans for each in pipelines if each.plans is not None)
    plans = dict.fromkeys(plan for reference in references for plan in _declared(reference))
    return [
        {
            "network": plan.name,
            "library": plan.library,
            "family": plan.family,
            "parts": sorted(part.value for part in plan.parts),
            "axes": [axis.name for axis in cutting if _parts(axis) <= plan.parts],
        }
        for plan in plans
    ]


def plan_rows(pipelines: Iterable[PipelineConfig], axes: Sequence[Axis]) -> list[tuple[str, ...]]:
    """The same as a table: a row for each network, a column for each axis."""
    names = [axis.name for axis in _cutting(axes)]
    rows = [
        (
            str(plan["network"]),
            *("yes" if name in cast("list[str]", plan["axes"]) else "-" for name in names),
        )
        for plan in listed_plans(pipelines, axes)
    ]
    return [("network", *names), *rows] if rows else []


def _declared(reference: str) -> Sequence[_Plan]:
    made = resolve(reference)
    assert callable(made)
    return cast("Sequence[_Plan]", made())


def _cutting(axes: Iterable[Axis]) -> list[Axis]:
    """Of these, the axes of diffusion stages that cut what plans speak of."""
    return [
        axis
        for axis in axes
        if ExecutionType.DIFFUSION in axis.fits and _parts(axis) and not _parts(axis) & _OWN
    ]


def _parts(axis: Axis) -> frozenset[Part]:
    """What an axis of size 2 cuts where nothing else is said about it."""
    cut = axis.cuts(2, axis.options())
    return frozenset(part for part, number in cut.items() if number > 1)
