"""Process groups as slices of the mesh. No rank is ever computed from another one."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import TypeAlias

from stagemesh.plan.world import Mesh
from stagemesh.spec.axis import Axis, WorldRole

Coords: TypeAlias = Mapping[str, int]
Groups: TypeAlias = tuple[tuple[int, ...], ...]


def coordinates(mesh: Mesh) -> tuple[Coords, ...]:
    """Return the coordinates of every rank, in the order of ranks: the last axis runs fastest."""
    names = [name for name, _ in mesh]
    points = itertools.product(*(range(size) for _, size in mesh))
    return tuple(dict(zip(names, point, strict=True)) for point in points)


def slices(mesh: Mesh, along: Collection[str]) -> Groups:
    """Return the groups of ranks that differ only on the axes `along`."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, coords in enumerate(coordinates(mesh)):
        fixed = tuple(coord for name, coord in coords.items() if name not in along)
        groups.setdefault(fixed, []).append(rank)
    return tuple(tuple(group) for group in groups.values())


def groups_of(axis: Axis, size: int, mesh: Mesh) -> Groups:
    """Return the groups of one axis inside a replica; none for axes that are not about ranks."""
    if axis.role is WorldRole.MULTIPLIES_RANKS:
        return slices(mesh, {axis.name})
    if axis.role is WorldRole.REUSES_RANKS:
        if axis.overlay is None:
            return (tuple(range(size)),)
        return slices(mesh, {axis.name, *axis.overlay})
    return ()
