"""What replicas ask of a Ray cluster: one bundle each, or one for all that share devices. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from stagemesh.errors import StartupError
from stagemesh.plan.sharing import Held, sharing
from stagemesh.plan.values import Plan, ReplicaPlan
from stagemesh.runtime.replica import ReplicaId
from stagemesh.spec.frozen import frozen

Resources: TypeAlias = Mapping[str, float]
"""Amounts by the names that Ray has for them."""

_CPU_KIND: Final = "cpu"
_GRAIN: Final = 10_000
"""Ray counts parts of a device in ten-thousandths."""


@frozen
class Share:
    """What one replica takes of its bundle."""

    bundle: int
    """Which one it is."""
    cpus: float
    """A CPU for each rank."""
    gpus: float
    """Devices of its own, or its part of the one that it shares; none on CPU."""


@frozen
class Request:
    """A placement group to be."""

    bundles: tuple[Resources, ...]
    """What has to lie on one node each."""
    shares: Mapping[ReplicaId, Share]
    """Who takes what of them."""


def request_for(replicas: Sequence[tuple[ReplicaId, ReplicaPlan]], kind: str) -> Request:
    """Ask for room for replicas on devices of a kind.

    Replicas that share devices are in one bundle, since they belong onto the same ones; the planner
    lets several share one device alone.
    """
    if kind == _CPU_KIND:
        groups: list[Held[ReplicaId]] = [group for each in replicas for group in sharing([each])]
    else:
        groups = sharing(replicas)
    bundles: list[Resources] = []
    shares: dict[ReplicaId, Share] = {}
    for index, group in enumerate(groups):
        ranks = [name for held in group.values() for name, _ in held]
        names = dict.fromkeys(ranks)
        gpus = 0.0 if kind == _CPU_KIND else float(len(group))
        part = gpus if len(names) == 1 else math.floor(_GRAIN * gpus / len(names)) / _GRAIN
        for name in names:
            shares[name] = Share(bundle=index, cpus=float(ranks.count(name)), gpus=part)
        bundles.append({"CPU": float(len(ranks)), **({"GPU": gpus} if gpus else {})})
    return Request(bundles=tuple(bundles), shares=shares)


def missing(
    bundles: Sequence[Resources], free: Resources, nodes: Sequence[Resources]
) -> Iterator[str]:
    """Say which resources a cluster lacks; `nodes` are what each node has when nothing runs."""
    short = False
    for name in sorted({name for bundle in bundles for name in bundle}):
        wanted = sum(bundle.get(name, 0.0) for bundle in bundles)
        if wanted > free.get(name, 0.0):
            short = True
            yield f"`{name}`: `{wanted:g}` wanted, `{free.get(name, 0.0):g}` free"
    too_big = {
        ", ".join(f"{name}: {amount:g}" for name, amount in bundle.items()): None
        for bundle in bundles
        if not any(all(node.get(name, 0.0) >= bundle[name] for name in bundle) for node in nodes)
    }
    for told in too_big:
        short = True
        yield f"no node has `{{{told}}}`"
    if not short:
        yield "no node has room beside what runs there"


def as_seen(plan: Plan, where: ReplicaId, ids: Sequence[str]) -> Plan:
    """Give one replica the devices that Ray shows its process, and no others: those named `ids`.

    Raises `StartupError` when they are too few.
    """
    if plan.devices.kind == _CPU_KIND:
        return plan
    planned = plan.stage(where.stage)
    devices = sorted({rank.device for rank in planned.replicas[where.replica].ranks})
    if plan.devices.ids and len(ids) < len(devices):
        told = f"Ray shows it `{len(ids)}` devices, and it needs `{len(devices)}`"
        raise StartupError(told, stage=planned.name)
    replicas = tuple(
        _renumbered(each, devices) if each.index == where.replica else each
        for each in planned.replicas
    )
    stages = tuple(
        replace(stage, replicas=replicas) if stage is planned else stage for stage in plan.stages
    )
    return replace(plan, stages=stages, devices=replace(plan.devices, ids=tuple(ids)))


def _renumbered(replica: ReplicaPlan, devices: Sequence[int]) -> ReplicaPlan:
    ranks = (replace(rank, device=devices.index(rank.device)) for rank in replica.ranks)
    return replace(replica, ranks=tuple(ranks))
