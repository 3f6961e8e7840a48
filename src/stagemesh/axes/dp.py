"""Data parallelism inside an engine: groups of ranks that serve independent requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, cast

from stagemesh.axes._hash import LoadBound, check_hash, settle_hash
from stagemesh.spec.axis import Axis, DeployField, Finding, Owner, StackView, WorldRole
from stagemesh.spec.bounds import Range
from stagemesh.spec.cost import Part, cuts
from stagemesh.spec.frozen import frozen
from stagemesh.spec.patterns import Policy, RouteByStage, Union
from stagemesh.spec.pipeline import ExecutionType


@frozen
class Options:
    """Further keys of a `dp` entry."""

    key: str | None = None
    """With `routing: hash`, what is hashed: `request_id` when it is left out."""
    load_bound: LoadBound | None = None
    """With `routing: hash`, times the even share that a group may hold: `1.25` when left out."""
    local: Annotated[int, Range(minimum=0)] | None = None
    """Groups that lie on this host. A plan is for one host, so it can only repeat the size."""


def _check(view: StackView) -> Iterator[Finding]:
    size, local = view.size("dp"), cast("Options", view.options).local
    if local is not None and local != size:
        yield Finding(
            code="AX047",
            message=f"`{local}` of the `{size}` `dp` groups of `{view.stage}` cannot be planned",
            help="a plan places all ranks of a stage on one host: leave the local number out, and"
            " use `stage_replica` for copies on other hosts",
            option="local",
        )
    yield from check_hash(view, "dp")


AXIS = Axis(
    name="dp",
    summary="data parallelism: groups of ranks serve independent requests",
    fits=frozenset(ExecutionType),
    role=WorldRole.MULTIPLIES_RANKS,
    routing=RouteByStage(),
    aggregation=Union(),
    owner=Owner.ENGINE,
    policies=tuple(Policy),
    mesh_position=0,
    deploy_fields=(
        DeployField(name="data_parallel_size", pipeline_wide=True),
        DeployField(name="data_parallel_size_local", member="local"),
    ),
    options=Options,
    about_size=frozenset({"local"}),
    needs=("`local` can only repeat its size",),
    settle=settle_hash,
    check=_check,
    cuts=cuts(Part.REQUESTS),
)
