"""Strategies as Python values: one `StrategySpec` for each axis that is laid over a stage.

The same as an entry of a strategy file, and checked in the same place: nothing is refused here. The
kinds of axes are those of the registry, so their enum is made when it is first asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from stagemesh.spec.frozen import frozen
from stagemesh.spec.hooks import KernelSpec, LayerHookSpec
from stagemesh.spec.patterns import Aggregation, Routing
from stagemesh.spec.registry import AXES


@frozen
class MeshAxis:
    """A kind of axis and its degree."""

    kind: str
    """A member of `MeshAxisKind`, or its text, such as `tp`."""
    size: int
    """Its degree."""


@frozen
class StrategySpec:
    """One axis of one stage."""

    mesh_axis: MeshAxis
    """Which axis, and its degree."""
    name: str | None = None
    """Label in messages and plans; the name of the axis when left out."""
    routing: Routing | None = None
    """L1: how work enters it; the axis' own when left out. It can only choose a policy."""
    aggregation: Aggregation | None = None
    """L1: how results leave it; it can only repeat what the axis says."""
    layer_hook_specs: tuple[LayerHookSpec, ...] = ()
    """L2: hooks to bind onto layers, besides those of the axis."""
    kernel_specs: tuple[KernelSpec, ...] = ()
    """L3: kernels to bind onto layers, besides those of the axis."""
    shard_extension: Mapping[str, object] | None = field(default_factory=dict)
    """The other keys of an entry: options of the axis, and `l1_owner`."""


@functools.cache
def mesh_axis_kinds() -> type[StrEnum]:
    """Return `MeshAxisKind`: the axes that are installed, `TP` with the value `tp` and so on."""
    members = {name.upper().replace("-", "_"): name for name in AXES.modules()}
    kinds = StrEnum("MeshAxisKind", members, module=__name__)  # type: ignore[misc]  # of the registry
    kinds.__doc__ = "The kinds of axes that are installed."
    return kinds
