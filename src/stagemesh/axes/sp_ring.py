"""Ring sequence parallelism: keys and values reach every rank that shares a sequence.

They travel round the ranks, or are gathered whole: the same ranks, the same result, and another
exchange. So either composes with Ulysses, which splits heads.
"""

from __future__ import annotations

from typing import Final, Literal, cast

from stagemesh.spec.axis import Axis, DeployField, Owner, WorldRole
from stagemesh.spec.cost import Cost, CostView, Part, cuts
from stagemesh.spec.frozen import frozen
from stagemesh.spec.patterns import GatherDim, ShardSequence
from stagemesh.spec.pipeline import ExecutionType


@frozen
class Options:
    """Further keys of an `sp_ring` entry."""

    exchange: Literal["ring", "allgather"] = "ring"
    """`ring` passes keys and values round, block by block; `allgather` gathers them whole."""


_HIDDEN: Final = 0.2
"""Share of the sending that published runs hide behind attention (two and four L20, FLUX.1)."""
_SCORE_BYTES: Final = 4
"""Partial results are merged in float32."""


def _cost(view: CostView) -> Cost | None:
    """Bring keys and values of every block to every ring rank, in every layer.

    A block is what one ring rank holds after the heads were cut. Passed round, each rank sends all
    of them but the next rank's own; two are in flight, beside the partial result and its
    normaliser. Gathered, as much is sent in one go, and all of them are held.
    """
    facts, size = view.facts, view.size("sp_ring")
    heads, kv_heads, layers = facts.num_attention_heads, facts.num_kv_heads, facts.num_layers
    if heads is None or kv_heads is None or facts.head_dim is None or layers is None:
        return None
    layers = -(-layers // view.cut(Part.LAYERS))
    head_ranks = view.cut(Part.WIDTH) * view.size("sp_ulysses")
    blocks = _blocks(view.lengths, size)
    token = 2 * -(-kv_heads // head_ranks) * facts.head_dim * view.forward.element_bytes
    sent = (sum(blocks) - min(blocks)) * token * layers
    if cast("Options", view.options).exchange == "allgather":
        return Cost(sent_bytes=sent, collectives=layers, memory_bytes=sum(blocks) * token)
    result = -(-heads // head_ranks) * (facts.head_dim + 1) * _SCORE_BYTES
    return Cost(
        sent_bytes=sent,
        collectives=(size - 1) * layers,
        memory_bytes=max(blocks) * (2 * token + result),
        hidden=_HIDDEN,
    )


def _blocks(lengths: tuple[int, ...], size: int) -> list[int]:
    """Tokens of each ring rank: those of consecutive ranks, which share their heads."""
    width = len(lengths) // size
    return [sum(lengths[start : start + width]) for start in range(0, len(lengths), width)]


AXIS = Axis(
    name="sp_ring",
    summary="sequence parallelism by ring: keys and values travel round the ranks",
    fits=frozenset({ExecutionType.DIFFUSION}),
    role=WorldRole.MULTIPLIES_RANKS,
    routing=ShardSequence(),
    aggregation=GatherDim(),
    owner=Owner.ENGINE,
    mesh_position=4,
    deploy_fields=(
        DeployField(name="ring_degree", implies={"exchange": "ring"}),
        DeployField(name="allgather_degree", implies={"exchange": "allgather"}),
    ),
    excludes_fields={
        "diffusion_kv_cache_dtype": "blocks of keys and values travel in the type of the model",
    },
    serves_fields=frozenset({"mask_sp_padding"}),
    options=Options,
    cuts=cuts(Part.TOKENS),
    cost=_cost,
)
