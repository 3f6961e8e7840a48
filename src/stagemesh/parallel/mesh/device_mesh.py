"""`DeviceMesh`: the groups of one rank, connected. It exists on all ranks, or on none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeAlias

from torch import distributed

from stagemesh.errors import MeshError
from stagemesh.parallel.mesh.communicator import Communicator
from stagemesh.parallel.mesh.links import Link
from stagemesh.parallel.mesh.ranks import GlobalRank, Group, Layout
from stagemesh.parallel.mesh.stores import PrefixStore, Store

Connect: TypeAlias = Callable[[Group, Store, float], Link]
"""Connects a group over a store that only its members share, within so many seconds."""

_GOOD: Final = "good"
_FAILED: Final = "failed: "


class DeviceMesh:
    """What one rank has to do with the others: a communicator for every axis of the layout."""

    def __init__(self, rank: GlobalRank, layout: Layout, links: dict[str, Link]) -> None:
        """Take over links that are connected; an axis whose group is one rank needs none."""
        self.rank: Final = rank
        self.layout: Final = layout
        self._links = links
        self._communicators = {
            axis: Communicator(layout.of(axis, rank), links.get(axis)) for axis in layout.groups
        }

    @classmethod
    def create(
        cls,
        rank: GlobalRank,
        layout: Layout,
        store: Store,
        *,
        connect: Connect,
        within_s: float,
    ) -> DeviceMesh:
        """Connect all groups of a rank.

        Raises `MeshError` on every rank when one of them failed, is missing when the time is over,
        or has another layout; what had been connected is closed again.
        """
        _agree(store, "layout", (rank, layout.world_size), repr(layout), within_s)
        links: dict[str, Link] = {}
        said = _GOOD
        for axis in layout.groups:
            group = layout.of(axis, rank)
            if group.size == 1:
                continue
            own = PrefixStore(f"{axis}/{group.ranks[0]}", store)
            try:
                links[axis] = connect(group, own, within_s)
            except (MeshError, OSError, RuntimeError) as error:
                said = f"{_FAILED}`{axis}`: {error}"
                break
        try:
            _agree(store, "connected", (rank, layout.world_size), said, within_s)
        except MeshError:
            _close(links)
            raise
        return cls(rank, layout, links)

    def over(self, axis: str) -> Communicator:
        """Return the communicator of the own group along an axis."""
        return self._communicators[axis]

    def close(self) -> None:
        """Close every link. Ranks that wait for this one are told."""
        _close(self._links)


def _close(links: dict[str, Link]) -> None:
    while links:
        _, link = links.popitem()
        link.close()


def _agree(
    store: Store, about: str, place: tuple[GlobalRank, int], said: str, within_s: float
) -> None:
    """Say something, hear what all ranks say, and return when all say the same, and nothing bad."""
    rank, world_size = place
    keys = [f"{about}/{each}" for each in range(world_size)]
    try:
        store.set(keys[rank], said)
        store.wait(keys, timedelta(seconds=within_s))
        heard = [store.get(key).decode() for key in keys]
    except distributed.DistError as error:
        msg = f"not all of {world_size} ranks came together within {within_s:g} s"
        raise MeshError(msg) from error
    failed = [f"rank {n}: {text}" for n, text in enumerate(heard) if text.startswith(_FAILED)]
    if failed:
        raise MeshError("; ".join(failed))
    others = [n for n, text in enumerate(heard) if text != heard[0]]
    if others:
        raise MeshError(f"ranks `{others}` have another {about} than rank 0")
