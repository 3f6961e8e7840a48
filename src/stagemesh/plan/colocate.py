"""Which stages share a process, and what that means for devices and edges.

A stage that names another is its guest: every replica of it is started in the process of the
replica with its number. Who names a guest joins the same processes, so that a chain is one group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from stagemesh.config.settings import Settings
from stagemesh.config.stages import Stages
from stagemesh.plan.place import Placement
from stagemesh.plan.wish import DeviceIds, Wish
from stagemesh.spec.connector import ConnectorSpec, Reach
from stagemesh.spec.pipeline import PipelineConfig

FIELD: Final = "colocate_with"
"""The stage field that names the host."""


def named_of(pipeline: PipelineConfig, settings: Settings) -> Mapping[int, int | None]:
    """Return the stage that each stage names, `None` for one that is not there.

    A stage that names itself has processes of its own, as it has without a word.
    """
    stages = Stages(pipeline=pipeline)
    found: dict[int, int | None] = {}
    for said in settings.stages:
        given = said.fields.get(FIELD)
        if given is None or given.value is None:
            continue
        name = given.value
        meant = stages.named(name) if isinstance(name, str) else stages.numbered(int(str(name)))
        if meant is None or meant.stage_id != said.stage_id:
            found[said.stage_id] = None if meant is None else meant.stage_id
    return found


def hosts_of(named: Mapping[int, int | None]) -> Mapping[int, int]:
    """Return the host of every guest; what leads nowhere, or round in a circle, has none."""
    found = {stage: _end(named, stage) for stage in named}
    return {stage: host for stage, host in found.items() if host is not None}


def _end(named: Mapping[int, int | None], stage: int) -> int | None:
    at: int | None = stage
    for _ in range(len(named) + 1):
        if at is None or at not in named:
            return at
        at = named[at]
    return None


def share_process(hosts: Mapping[int, int], one: int, other: int) -> bool:
    """Whether two stages are in one process."""
    return hosts.get(one, one) == hosts.get(other, other)


def connector_between(
    edge: tuple[int, int], hosts: Mapping[int, int], connectors: Mapping[str, ConnectorSpec]
) -> ConnectorSpec:
    """Return the connector of an edge for which none was named."""
    specs = list(connectors.values())
    default = next(spec for spec in specs if spec.is_default)
    if not share_process(hosts, *edge):
        return default
    return next((spec for spec in specs if spec.reach is Reach.PROCESS), default)


def together(wishes: Sequence[Wish], hosts: Mapping[int, int]) -> list[Wish]:
    """Make one wish of the stages of each process; stages that do not fit together stay alone."""
    guests = {host: list(_guests(wishes, hosts, host)) for host in set(hosts.values())}
    placed = {guest.stage_id for each in guests.values() for guest in each}
    return [
        _joined(wish, guests.get(wish.stage_id, []))
        for wish in wishes
        if wish.stage_id not in placed
    ]


def _guests(wishes: Sequence[Wish], hosts: Mapping[int, int], host: int) -> Iterator[Wish]:
    own = next((wish for wish in wishes if wish.stage_id == host), None)
    for wish in wishes:
        if own is None or hosts.get(wish.stage_id) != host:
            continue
        if wish.world == own.world == 1 and wish.num_replicas == own.num_replicas:
            yield wish


def _joined(host: Wish, guests: Sequence[Wish]) -> Wish:
    """The devices that a user lists for any of them are those of all."""
    if not guests:
        return host
    bound = (
        wish
        for wish in (host, *guests)
        if wish.listed is not None and not wish.listed.origin.shipped
    )
    listing = next(bound, host)
    return replace(host, listed=listing.listed, repeats=listing.repeats, guests=tuple(guests))


def parted(placement: Placement, wishes: Iterable[Wish]) -> Placement:
    """Return where every stage lies; `wishes` are those that were placed."""
    replicas, moved = dict(placement.replicas), dict(placement.moved)
    for wish in wishes:
        for guest in wish.guests if wish.stage_id in replicas else ():
            replicas[guest.stage_id] = replicas[wish.stage_id]
            if not _lies_as_shipped(guest, replicas[guest.stage_id]):
                moved[guest.stage_id] = f"it runs in the processes of `{wish.stage}`"
    return replace(placement, replicas=replicas, moved=moved)


def _lies_as_shipped(guest: Wish, replicas: Sequence[DeviceIds]) -> bool:
    """Whether no shipped list of devices says otherwise, be it for one replica or for all."""
    if guest.listed is None or not guest.listed.origin.shipped:
        return True
    shipped = [int(text) for text in guest.listed.value.split(",")]
    return shipped == [device for ids in replicas for device in ids][: len(shipped)]
