"""Where each given value came from, as the plan records it: by path, member by member."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from stagemesh.config.plain import plain
from stagemesh.config.settings import AxisSettings, Sourced
from stagemesh.plan.values import ValuePlan
from stagemesh.spec.axis import SIZE
from stagemesh.spec.origin import Layer

AXES: Final = "axes"
"""First part of the paths of what was said about axes."""
PLACEMENT: Final = "placement"
"""Stands for the layer where the planner takes back devices; the origin then says why."""


def values_of(given: Mapping[str, Sourced[object]]) -> Mapping[str, ValuePlan]:
    """Say of every given value where it came from; mappings are merged, so of each member."""
    return {path: value_plan(leaf) for path, leaf in _leaves(given, "")}


def cleared_of(cleared: Mapping[str, Sourced[object]]) -> Mapping[str, ValuePlan]:
    """Say of everything that was taken back by whom, and what it was."""
    return {path: value_plan(taken) for path, taken in sorted(cleared.items())}


def axis_values(axes: Iterable[AxisSettings], sizes: Mapping[str, int]) -> Mapping[str, ValuePlan]:
    """Say of everything that was said about axes where it came from.

    A size that follows from others comes from where its axis was switched on; `sizes` has it, or
    lacks it where nothing is planned. An option alone switches an axis on, but gives no size.
    """
    found: dict[str, ValuePlan] = {}
    for axis in axes:
        given: dict[str, Sourced[Any] | None] = {
            SIZE: axis.size,
            "routing": axis.routing,
            "owner": axis.owner,
            "layer_hook_specs": axis.layer_hook_specs,
            "kernel_specs": axis.kernel_specs,
            **axis.options,
        }
        size = sizes.get(axis.axis, True)
        if axis.size is None and (size != 1 or not any(given.values())):
            given[SIZE] = Sourced(value=size, origin=axis.origin)
        for name, sourced in given.items():
            if sourced is not None:
                found[f"{AXES}.{axis.axis}.{name}"] = value_plan(sourced)
    return found


def _leaves(
    given: Mapping[Any, Sourced[object]], prefix: str
) -> Iterator[tuple[str, Sourced[object]]]:
    for key, sourced in sorted(given.items(), key=lambda item: str(item[0])):
        path = f"{prefix}{key}"
        if sourced.parts:
            yield from _leaves(sourced.parts, f"{path}.")
        else:
            yield path, sourced


def value_plan(sourced: Sourced[Any]) -> ValuePlan:
    """Write down a value with its place and what it replaced."""
    origin = sourced.origin
    return ValuePlan(
        value=plain(sourced.value),
        layer=origin.layer.name.lower(),
        origin=str(origin),
        is_default=origin.shipped or origin.layer <= Layer.PIPELINE,
        superseded=tuple(value_plan(below) for below in sourced.superseded),
        clears=sourced.clears,
    )
