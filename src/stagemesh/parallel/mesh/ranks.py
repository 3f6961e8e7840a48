"""Ranks and groups. A rank of the world and a place within a group are different types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NewType

from stagemesh.plan.groups import Groups, slices
from stagemesh.plan.values import StagePlan
from stagemesh.spec.axis import WorldRole
from stagemesh.spec.frozen import frozen

GlobalRank = NewType("GlobalRank", int)
"""A rank among all ranks of one replica."""
GroupRank = NewType("GroupRank", int)
"""A place within one group; the same number means another rank in another group."""


@frozen
class Group:
    """One group of ranks, as one of its members sees it."""

    axis: str
    """The axis along which its ranks differ; several axes are joined by `+`."""
    ranks: tuple[GlobalRank, ...]
    """Its members in the order of their places."""
    own: GroupRank
    """The place of the rank that looks."""

    @property
    def size(self) -> int:
        """How many members it has."""
        return len(self.ranks)

    def member(self, place: GroupRank) -> GlobalRank:
        """Return who stands at a place."""
        return self.ranks[place]

    def after(self, steps: int) -> GroupRank:
        """Return the place so many steps behind the own one, around the ring."""
        return GroupRank((self.own + steps) % self.size)


@frozen
class Layout:
    """All groups of one replica, the same value on every rank."""

    world_size: int
    """Ranks of the replica."""
    groups: Mapping[str, Groups]
    """Groups of each axis, which share the ranks out among them."""

    def of(self, axis: str, rank: GlobalRank) -> Group:
        """Return the group along an axis that a rank is in."""
        found = next(group for group in self.groups[axis] if rank in group)
        ranks = tuple(GlobalRank(each) for each in found)
        return Group(axis=axis, ranks=ranks, own=GroupRank(ranks.index(rank)))


def layout_of(stage: StagePlan, together: Sequence[tuple[str, ...]] = ()) -> Layout:
    """Return the groups that a plan has made for a stage.

    `together` names axes whose ranks also form one group, as the two of stacked sequence
    parallelism do; such a group is called by the names of its axes, joined by `+`.
    """
    mesh = tuple(
        (axis.axis, axis.size)
        for axis in stage.axes
        if axis.role == WorldRole.MULTIPLIES_RANKS.value
    )
    groups = {axis.axis: axis.groups for axis in stage.axes if axis.groups}
    for names in together:
        groups["+".join(names)] = slices(mesh, names)
    return Layout(world_size=stage.world_size, groups=groups)
