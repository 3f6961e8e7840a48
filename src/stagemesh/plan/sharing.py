"""Which replicas lie on the same devices, and so belong together wherever they are started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from stagemesh.plan.values import RankPlan, ReplicaPlan

Name = TypeVar("Name")
"""What the caller calls a replica."""

Held: TypeAlias = Mapping[int, Sequence[tuple[Name, RankPlan]]]
"""Ranks by device, with the replica that each belongs to."""


def sharing(replicas: Iterable[tuple[Name, ReplicaPlan]]) -> list[Held[Name]]:
    """Group replicas that share devices, directly or through others, by their lowest device."""
    found: list[dict[int, list[tuple[Name, RankPlan]]]] = []
    for name, replica in replicas:
        own = {rank.device: [(name, rank)] for rank in replica.ranks}
        touching = [group for group in found if group.keys() & own.keys()]
        found = [group for group in found if group not in touching]
        merged: dict[int, list[tuple[Name, RankPlan]]] = {}
        for group in (*touching, own):
            for device, ranks in group.items():
                merged.setdefault(device, []).extend(ranks)
        found.append(merged)
    found.sort(key=min)
    return [*found]
