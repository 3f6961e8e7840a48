"""Stage replicas: independent copies of a whole stage, each on devices of its own."""

from __future__ import annotations

from collections.abc import Iterator

from stagemesh.axes._hash import LoadBound, check_hash, settle_hash
from stagemesh.spec.axis import Axis, DeployField, Finding, Owner, StackView, WorldRole
from stagemesh.spec.cost import Part, cuts
from stagemesh.spec.frozen import frozen
from stagemesh.spec.patterns import FanInByStage, Policy, RouteByStage
from stagemesh.spec.pipeline import ExecutionType


@frozen
class Options:
    """Further keys of a `stage_replica` entry."""

    key: str | None = None
    """With `routing: hash`, what is hashed: `request_id` when it is left out."""
    load_bound: LoadBound | None = None
    """With `routing: hash`, times the even share that a replica may hold: `1.25` when left out."""


def _check(view: StackView) -> Iterator[Finding]:
    yield from check_hash(view, "stage_replica")


AXIS = Axis(
    name="stage_replica",
    summary="stage replicas: independent copies of a whole stage",
    fits=frozenset(ExecutionType),
    role=WorldRole.MULTIPLIES_REPLICAS,
    routing=RouteByStage(),
    aggregation=FanInByStage(),
    owner=Owner.DELEGATED,
    policies=tuple(Policy),
    deploy_fields=(DeployField(name="num_replicas"),),
    options=Options,
    settle=settle_hash,
    check=_check,
    cuts=cuts(Part.REQUESTS),
)
