"""What replicas ask of a Ray cluster: one bundle each, or one for all that share devices.

Replicas whose ranks Ray starts itself ask for one for each rank instead. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from stagemesh.errors import StartupError
from stagemesh.plan.sharing import Held, sharing
from stagemesh.plan.values import Plan, RankPlan, ReplicaPlan
from stagemesh.runtime.replica import ReplicaId
from stagemesh.spec.frozen import frozen

Resources: TypeAlias = Mapping[str, float]
"""Amounts by the names that Ray has for them."""

_CPU_KIND: Final = "cpu"
_GRAIN: Final = 10_000
"""Ray counts parts of a device in ten-thousandths."""


@frozen
class Share:
    """What one actor takes of its bundle."""

    bundle: int
    """Which one it is."""
    cpus: float
    """A CPU for each rank that it keeps."""
    gpus: float
    """Devices of its own, or its part of the one that it shares; none on CPU."""


@frozen
class Request:
    """A placement group to be."""

    bundles: tuple[Resources, ...]
    """What has to lie on one node each."""
    shares: Mapping[ReplicaId, tuple[Share, ...]]
    """Who takes what of them: one share for all ranks of a replica, or one for each."""


def request_for(
    replicas: Sequence[tuple[ReplicaId, ReplicaPlan]], kind: str, spread: Collection[ReplicaId] = ()
) -> Request:
    """Ask for room for replicas on devices of a kind; ranks of `spread` ones need not be together.

    Replicas that share devices are in one bundle, since they belong onto the same ones; the planner
    lets several share one device alone.
    """
    together = [each for each in replicas if each[0] not in spread]
    if kind == _CPU_KIND:
        groups: list[Held[ReplicaId]] = [group for each in together for group in sharing([each])]
    else:
        groups = sharing(together)
    bundles: list[Resources] = []
    shares: dict[ReplicaId, tuple[Share, ...]] = {}
    for index, group in enumerate(groups):
        ranks = [name for held in group.values() for name, _ in held]
        names = dict.fromkeys(ranks)
        gpus = 0.0 if kind == _CPU_KIND else float(len(group))
        part = gpus if len(names) == 1 else math.floor(_GRAIN * gpus / len(names)) / _GRAIN
        for name in names:
            shares[name] = (Share(bundle=index, cpus=float(ranks.count(name)), gpus=part),)
        bundles.append(_bundle(len(ranks), gpus))
    gpus = 0.0 if kind == _CPU_KIND else 1.0
    for name, replica in replicas:
        if name in spread:
            first = len(bundles)
            bundles += [_bundle(1, gpus) for _ in replica.ranks]
            shares[name] = tuple(
                Share(bundle=index, cpus=1.0, gpus=gpus) for index in range(first, len(bundles))
            )
    return Request(bundles=tuple(bundles), shares=shares)


def _bundle(num_ranks: int, gpus: float) -> Resources:
    return {"CPU": float(num_ranks), **({"GPU": gpus} if gpus else {})}


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


def as_seen(plan: Plan, where: ReplicaId, ids: Sequence[str], *, rank: int | None = None) -> Plan:
    """Give one replica the devices that Ray shows its process, and no others: those named `ids`.

    They are for all ranks, or for one alone. Raises `StartupError` when they are too few.
    """
    if plan.devices.kind == _CPU_KIND:
        return plan
    planned = plan.stage(where.stage)
    ranks = planned.replicas[where.replica].ranks
    own = ranks if rank is None else (ranks[rank],)
    devices = sorted({each.device for each in own})
    if plan.devices.ids and len(ids) < len(devices):
        told = f"Ray shows it `{len(ids)}` devices, and it needs `{len(devices)}`"
        raise StartupError(told, stage=planned.name)
    replicas = tuple(
        replace(each, ranks=tuple(_renumbered(each.ranks, devices)))
        if each.index == where.replica
        else each
        for each in planned.replicas
    )
    stages = tuple(
        replace(stage, replicas=replicas) if stage is planned else stage for stage in plan.stages
    )
    return replace(plan, stages=stages, devices=replace(plan.devices, ids=tuple(ids)))


def _renumbered(ranks: Sequence[RankPlan], devices: Sequence[int]) -> Iterator[RankPlan]:
    """Number devices as the process sees them; those that it does not see are no matter to it."""
    for rank in ranks:
        if rank.device in devices:
            yield replace(rank, device=devices.index(rank.device))
        else:
            yield rank
