"""Ring sequence parallelism: keys and values travel round the ranks that share a sequence."""

from __future__ import annotations

from stagemesh.spec.axis import Axis, DeployField, Owner, WorldRole
from stagemesh.spec.patterns import GatherDim, ShardSequence
from stagemesh.spec.pipeline import ExecutionType

AXIS = Axis(
    name="sp_ring",
    summary="sequence parallelism by ring: keys and values travel round the ranks",
    fits=frozenset({ExecutionType.DIFFUSION}),
    role=WorldRole.MULTIPLIES_RANKS,
    routing=ShardSequence(),
    aggregation=GatherDim(),
    owner=Owner.ENGINE,
    mesh_position=4,
    deploy_fields=(DeployField(name="ring_degree"),),
)
