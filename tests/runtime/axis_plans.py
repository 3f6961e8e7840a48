"""Axes as a plan has them, for tests that give a planned stage one more."""

from __future__ import annotations

from collections.abc import Mapping

from stagemesh.plan.values import AxisPlan, PatternPlan

_PLAIN = PatternPlan(name="RouteByStage", args={})


def axis_plan(
    axis: str,
    size: int,
    role: str,
    *,
    options: Mapping[str, object] | None = None,
    pattern: PatternPlan = _PLAIN,
) -> AxisPlan:
    """An axis without groups of its own; `pattern` is both its routing and its aggregation."""
    return AxisPlan(
        axis=axis,
        size=size,
        label=axis,
        role=role,
        groups=(),
        routing=pattern,
        aggregation=pattern,
        owner="delegated",
        options=options or {},
        traffic=None,
    )
