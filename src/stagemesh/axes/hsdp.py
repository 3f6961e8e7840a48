"""Hybrid sharding: weights lie in shards over the ranks and are gathered block by block.

The size is shard x replicate. Where it is left out it follows from what is there: the shard that
was given, or else the ranks of the other axes. Alone, it brings the ranks itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Final, cast

from stagemesh.spec.axis import (
    ENABLED,
    Axis,
    DeployField,
    Finding,
    Owner,
    Said,
    StackView,
    WorldRole,
)
from stagemesh.spec.bounds import Range
from stagemesh.spec.cost import Cost, CostView, Part, Pieces
from stagemesh.spec.frozen import frozen
from stagemesh.spec.patterns import PartitionByHash, Union
from stagemesh.spec.pipeline import ExecutionType

_AUTO: Final = -1
_MOST: Final = 64
"""Numbers of copies that are looked at for advice."""


@frozen
class Options:
    """Further keys of an `hsdp` entry."""

    shard: Annotated[int, Range(minimum=1, also=_AUTO)] = _AUTO
    """Ranks that share one copy of the weights; `-1` is `size` over `replicate`."""
    replicate: Annotated[int, Range(minimum=1)] = 1
    """Copies of the weights."""


def _settle(said: Said) -> Said | Finding:
    options, size = cast("Options", said.options), said.size
    shard, replicate = options.shard, options.replicate
    if size is None and shard == _AUTO and said.ranks == 1:
        return Finding(
            code="AX040",
            message=f"`hsdp` alone on `{said.stage}` needs a number of ranks",
            help="write `hsdp_shard_size: 2`, or as many as there are, beside `use_hsdp`, or lay"
            " other axes over the stage",
        )
    if size is None:
        size = said.ranks if shard == _AUTO else shard * replicate
    if shard == _AUTO:
        options = replace(options, shard=size // replicate)
    return replace(said, size=size, options=options)


def _check(view: StackView) -> Iterator[Finding]:
    size, options = view.size("hsdp"), cast("Options", view.options)
    shard, replicate = options.shard, options.replicate
    if size % replicate:
        fitting = ", ".join(
            f"`{copies}`" for copies in range(1, min(size, _MOST) + 1) if size % copies == 0
        )
        yield Finding(
            code="AX037",
            message=f"`hsdp` cannot make `replicate` = `{replicate}` copies over `{size}` ranks",
            help=f"`{size}` ranks divide into {fitting} copies",
            option="replicate",
        )
    elif shard * replicate != size:
        yield Finding(
            code="AX037",
            message=f"`hsdp` shard `{shard}` x replicate `{replicate}` does not make size `{size}`",
            help="give two numbers from 1 whose product is the size, or leave the shard out",
        )
    elif size != view.world:
        yield Finding(
            code="AX038",
            message=f"`hsdp` size `{size}` is not the `{view.world}` ranks of `{view.stage}`",
            help=f"make shard x replicate `{view.world}`; the other axes have already fixed the"
            " ranks",
        )


def _shard(size: int, options: object) -> int:
    """Ranks that share one copy of the weights."""
    given = cast("Options", options)
    return given.shard if given.shard > 0 else max(size // given.replicate, 1)


def _cuts(size: int, options: object) -> Pieces:
    return {Part.SHARDS: _shard(size, options)}


def _cost(view: CostView) -> Cost | None:
    """Gather the weights block by block: one is computed with while the next one arrives."""
    layers, shard = view.facts.num_layers, _shard(view.size("hsdp"), view.options)
    whole = view.forward.weight_bytes
    if layers is None or whole is None:
        return None
    weights = -(-whole // view.cut(Part.WIDTH))
    return Cost(
        sent_bytes=-(-weights // shard) * (shard - 1),
        collectives=layers + 1 if shard > 1 else 0,
        memory_bytes=2 * -(-weights // layers) if shard > 1 else 0,
        hidden=1.0,
    )


AXIS = Axis(
    name="hsdp",
    summary="hybrid sharding: weights in shards over the ranks, gathered block by block",
    fits=frozenset({ExecutionType.DIFFUSION}),
    role=WorldRole.REUSES_RANKS,
    routing=PartitionByHash(),
    aggregation=Union(),
    owner=Owner.ENGINE,
    deploy_fields=(
        DeployField(name="use_hsdp", member=ENABLED),
        DeployField(name="hsdp_shard_size", member="shard"),
        DeployField(name="hsdp_replicate_size", member="replicate"),
    ),
    overlay=("dp", "cfg", "pp", "cp", "sp_ring", "sp_ulysses", "tp"),
    supplies_world=True,
    excludes={
        "tp": "both shard the same weights, and that they compose exactly is not proven yet",
        "pp": "each rank of `pp` already holds layers of its own",
        "ep": "each rank of `ep` already holds experts of its own",
        "dp": "ranks that gather one copy of the weights have to step together; use `replicate`",
    },
    options=Options,
    about_size=frozenset({"shard", "replicate"}),
    settle=_settle,
    needs=(
        "its size is the number of ranks of the stage",
        "`shard` x `replicate` is its size",
    ),
    check=_check,
    cuts=_cuts,
    cost=_cost,
)
