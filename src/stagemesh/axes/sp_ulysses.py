"""Ulysses sequence parallelism: an all-to-all turns sequence shards into head shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, cast

from stagemesh.spec.axis import Axis, DeployField, Finding, Owner, StackView, WorldRole
from stagemesh.spec.bounds import Range
from stagemesh.spec.patterns import GatherDim, ShardSequence
from stagemesh.spec.pipeline import ExecutionType


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Further keys of an `sp_ulysses` entry."""

    mode: Literal["advanced_uaa", "strict"] = "advanced_uaa"
    """`advanced_uaa` takes any length and any head count, exactly; `strict` refuses remainders."""
    a2a_permute: bool = False
    """Whether the all-to-all leaves the order of heads to the layer; for `mode: strict` alone."""
    sequence_parallel_size: Annotated[int, Range(minimum=1)] | None = None
    """Ranks that share one sequence, as a check: ulysses x ring must make it."""


def _check(view: StackView) -> Iterator[Finding]:
    options = cast("Options", view.options)
    yield from _check_product(view, options.sequence_parallel_size)
    if view.size("sp_ulysses") == 1:
        return
    if options.mode == "strict":
        yield from _check_heads(view)
    elif options.a2a_permute:
        yield Finding(
            code="AX042",
            message=f"`a2a_permute` of `sp_ulysses` on `{view.stage}` needs `mode: strict`",
            help="write `mode: strict` (`ulysses_mode`), or leave `a2a_permute` out",
            option="a2a_permute",
        )


def _check_product(view: StackView, given: int | None) -> Iterator[Finding]:
    product = view.size("sp_ulysses") * view.size("sp_ring")
    if given is not None and given != product:
        yield Finding(
            code="AX041",
            message=f"`sequence_parallel_size` `{given}` is not ulysses x ring = `{product}`",
            help=f"write `{product}`, or leave it out: it follows from the two degrees",
            axes=("sp_ring",),
            option="sequence_parallel_size",
        )


def _check_heads(view: StackView) -> Iterator[Finding]:
    size, tp, heads = view.size("sp_ulysses"), view.size("tp"), view.facts.num_attention_heads
    if heads is None:
        view.skip(
            f"`sp_ulysses` of `{view.stage}`: the checkpoint does not give the number of heads"
        )
    elif heads % (size * tp):
        each = "" if heads % tp or tp == 1 else f"a rank of `tp` has `{heads // tp}` heads: "
        yield Finding(
            code="AX034",
            message=f"`sp_ulysses` x `tp` = `{size * tp}` does not divide `{heads}` heads",
            help=f"{each}choose sizes that divide, or leave `mode: strict` out: any head count"
            " works then",
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
    deploy_fields=(
        DeployField(name="ulysses_degree"),
        DeployField(name="ulysses_mode", member="mode"),
        DeployField(name="ulysses_a2a_permute", member="a2a_permute"),
        DeployField(name="sequence_parallel_size", member="sequence_parallel_size"),
    ),
    options=Options,
    check=_check,
)
