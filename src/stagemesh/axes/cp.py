"""Context parallelism: the prefill of a long prompt is cut over ranks by tokens."""

from __future__ import annotations

from stagemesh.spec.axis import Axis, Owner, WorldRole
from stagemesh.spec.patterns import GatherDim, ShardSequence
from stagemesh.spec.pipeline import ExecutionType

AXIS = Axis(
    name="cp",
    summary="context parallelism: long prefills cut over the ranks by tokens",
    fits=frozenset({ExecutionType.LLM_AR}),
    role=WorldRole.MULTIPLIES_RANKS,
    routing=ShardSequence(),
    aggregation=GatherDim(),
    owner=Owner.ENGINE,
    mesh_position=3,
)
