"""Hybrid sharding: weights lie in shards over the ranks and are gathered block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from stagemesh.spec.axis import Axis, Finding, Owner, StackView, WorldRole
from stagemesh.spec.patterns import PartitionByHash, Union
from stagemesh.spec.pipeline import ExecutionType


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Further keys of an `hsdp` entry."""

    shard: int = -1
    """Ranks that share one copy of the weights; `-1` is `size` over `replicate`."""
    replicate: int = 1
    """Copies of the weights."""


def _check(view: StackView) -> Iterator[Finding]:
    size, options = view.size("hsdp"), cast("Options", view.options)
    shard, replicate = options.shard, options.replicate
    if shard == -1 and replicate > 0:
        shard = size // replicate
    if min(shard, replicate) < 1 or shard * replicate != size:
        yield Finding(
            code="AX037",
            message=f"`hsdp` shard `{shard}` x replicate `{replicate}` does not make size `{size}`",
            help="write two numbers from 1 whose product is the size, or leave both out",
        )
    if size != view.world:
        yield Finding(
            code="AX038",
            message=f"`hsdp` size `{size}` is not the `{view.world}` ranks of `{view.stage}`",
            help=f"write `size: {view.world}`; the other axes have already fixed the ranks",
        )


AXIS = Axis(
    name="hsdp",
    summary="hybrid sharding: weights in shards over the ranks, gathered block by block",
    fits=frozenset({ExecutionType.DIFFUSION}),
    role=WorldRole.REUSES_RANKS,
    routing=PartitionByHash(),
    aggregation=Union(),
    owner=Owner.ENGINE,
    overlay=("dp", "cfg", "pp", "cp", "sp_ring", "sp_ulysses", "tp"),
    supplies_world=True,
    excludes={
        "tp": "both shard the same weights, and that they compose exactly is not proven yet",
        "pp": "each rank of `pp` already holds layers of its own",
        "ep": "each rank of `ep` already holds experts of its own",
        "dp": "ranks that gather one copy of the weights have to step together; use `replicate`",
    },
    options=Options,
    check=_check,
)
