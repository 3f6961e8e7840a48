"""Data parallelism inside an engine: groups of ranks that serve independent requests."""

from __future__ import annotations

from stagemesh.spec.axis import Axis, DeployField, Owner, WorldRole
from stagemesh.spec.patterns import Policy, RouteByStage, Union
from stagemesh.spec.pipeline import ExecutionType

AXIS = Axis(
    name="dp",
    summary="data parallelism: groups of ranks serve independent requests",
    fits=frozenset(ExecutionType),
    role=WorldRole.MULTIPLIES_RANKS,
    routing=RouteByStage(),
    aggregation=Union(),
    owner=Owner.ENGINE,
    policies=(Policy.ROUND_ROBIN, Policy.RANDOM, Policy.LEAST_QUEUE),
    mesh_position=0,
    deploy_fields=(DeployField(name="data_parallel_size", pipeline_wide=True),),
)
