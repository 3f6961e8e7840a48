"""Ring sequence parallelism: keys and values reach every rank that shares a sequence.

They travel round the ranks, or are gathered whole: the same ranks, the same result, and another
exchange. So either composes with Ulysses, which splits heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stagemesh.spec.axis import Axis, DeployField, Owner, WorldRole
from stagemesh.spec.patterns import GatherDim, ShardSequence
from stagemesh.spec.pipeline import ExecutionType


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Further keys of an `sp_ring` entry."""

    exchange: Literal["ring", "allgather"] = "ring"
    """`ring` passes keys and values round, block by block; `allgather` gathers them whole."""


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
    options=Options,
)
