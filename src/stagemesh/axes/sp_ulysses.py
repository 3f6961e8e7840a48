"""Ulysses sequence parallelism: an all-to-all turns sequence shards into head shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

from stagemesh.spec.axis import Axis, DeployField, Finding, Owner, StackView, WorldRole
from stagemesh.spec.patterns import GatherDim, ShardSequence
from stagemesh.spec.pipeline import ExecutionType


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Further keys of an `sp_ulysses` entry."""

    mode: Literal["advanced_uaa", "strict"] = "advanced_uaa"
    """`advanced_uaa` takes any length and any head count, exactly; `strict` refuses remainders."""


def _check(view: StackView) -> Iterator[Finding]:
    size, tp, heads = view.size("sp_ulysses"), view.size("tp"), view.facts.num_attention_heads
    if size == 1 or cast("Options", view.options).mode != "strict":
        return
    if heads is None:
        view.skip(
            f"`sp_ulysses` of `{view.stage}`: the checkpoint does not give the number of heads"
        )
    elif heads % (size * tp):
        yield Finding(
            code="AX034",
            message=f"`sp_ulysses` x `tp` = `{size * tp}` does not divide `{heads}` heads",
            help="choose sizes that divide, or leave `mode: strict` out: any head count works then",
            axes=("tp",),
        )


AXIS = Axis(
    name="sp_ulysses",
    summary="sequence parallelism by all-to-all: sequence shards become head shards",
    fits=frozenset({ExecutionType.DIFFUSION}),
    role=WorldRole.MULTIPLIES_RANKS,
    routing=ShardSequence(),
    aggregation=GatherDim(),
    owner=Owner.ENGINE,
    mesh_position=5,
    deploy_fields=(DeployField(name="ulysses_degree"),),
    options=Options,
    check=_check,
)
