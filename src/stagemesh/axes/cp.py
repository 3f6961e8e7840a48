"""Context parallelism: the prefill of a long prompt is cut over ranks by tokens."""

from __future__ import annotations

from stagemesh.spec.axis import Axis, Owner, WorldRole
from stagemesh.spec.cost import Cost, CostView, Part, cuts
from stagemesh.spec.patterns import GatherDim, ShardSequence
from stagemesh.spec.pipeline import ExecutionType


def _cost(view: CostView) -> Cost | None:
    """Pass the keys and values of every shard but the next rank's own round the ranks."""
    facts, size, lengths = view.facts, view.size("cp"), view.lengths
    if facts.num_kv_heads is None or facts.head_dim is None or facts.num_layers is None:
        return None
    heads = -(-facts.num_kv_heads // view.cut(Part.WIDTH))
    layers = -(-facts.num_layers // view.cut(Part.LAYERS))
    token = 2 * heads * facts.head_dim * view.forward.element_bytes
    return Cost(
        sent_bytes=(sum(lengths) - min(lengths)) * token * layers,
        collectives=(size - 1) * layers,
        memory_bytes=2 * max(lengths) * token,
    )


AXIS = Axis(
    name="cp",
    summary="context parallelism: long prefills cut over the ranks by tokens",
    fits=frozenset({ExecutionType.LLM_AR}),
    role=WorldRole.MULTIPLIES_RANKS,
    routing=ShardSequence(),
    aggregation=GatherDim(),
    owner=Owner.ENGINE,
    mesh_position=3,
    cuts=cuts(Part.TOKENS),
    cost=_cost,
)
