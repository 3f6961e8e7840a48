"""Stage replicas: independent copies of a whole stage, each on devices of its own."""

from __future__ import annotations

from stagemesh.spec.axis import Axis, DeployField, Owner, WorldRole
from stagemesh.spec.patterns import FanInByStage, Policy, RouteByStage
from stagemesh.spec.pipeline import ExecutionType

AXIS = Axis(
    name="stage_replica",
    summary="stage replicas: independent copies of a whole stage",
    fits=frozenset(ExecutionType),
    role=WorldRole.MULTIPLIES_REPLICAS,
    routing=RouteByStage(),
    aggregation=FanInByStage(),
    owner=Owner.DELEGATED,
    policies=(Policy.ROUND_ROBIN, Policy.RANDOM, Policy.LEAST_QUEUE),
    deploy_fields=(DeployField(name="num_replicas"),),
)
