"""The ranks of a stage: which axes bring them and how many there are. The one place that counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from stagemesh.spec.axis import Axis, WorldRole

Mesh: TypeAlias = tuple[tuple[str, int], ...]
"""Axes that bring ranks with their sizes, all above 1, slowest first."""


def mesh_order(axis: Axis) -> tuple[bool, int, str]:
    """Sort key of axes: by mesh position, then those without one by name."""
    return (axis.mesh_position is None, axis.mesh_position or 0, axis.name)


def mesh_of(axes: Iterable[Axis], sizes: Mapping[str, int], rank_axis: str | None = None) -> Mesh:
    """Return the mesh of one replica: the axes that multiply ranks, or the one that supplies it.

    `rank_axis` names an axis that supplies it on this stage alone.
    """
    ordered = sorted((axis for axis in axes if sizes[axis.name] > 1), key=mesh_order)
    multiplying = [axis for axis in ordered if axis.role is WorldRole.MULTIPLIES_RANKS]
    supplying = [axis for axis in ordered if axis.supplies_world or axis.name == rank_axis]
    return tuple((axis.name, sizes[axis.name]) for axis in multiplying or supplying[:1])


def world_size(mesh: Mesh) -> int:
    """Ranks of one replica."""
    return math.prod(size for _, size in mesh)


def replica_count(axes: Iterable[Axis], sizes: Mapping[str, int]) -> int:
    """Replicas of a stage."""
    return math.prod(
        sizes[axis.name] for axis in axes if axis.role is WorldRole.MULTIPLIES_REPLICAS
    )
