"""Ulysses sequence parallelism: an all-to-all turns sequence shards into head shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, cast

from stagemesh.spec.axis import Axis, DeployField, Finding, Owner, StackView, WorldRole
from stagemesh.spec.bounds import Range
from stagemesh.spec.cost import Cost, CostView, Part, cuts, even
from stagemesh.spec.frozen import frozen
from stagemesh.spec.patterns import GatherDim, ShardSequence
from stagemesh.spec.pipeline import ExecutionType


@frozen
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
    yield from _check_shares(view)
    if options.mode == "strict":
        yield from _check_heads(view)
    elif options.a2a_permute:
        permute, mode = view.name("a2a_permute"), view.name("mode")
        yield Finding(
            code="AX042",
            message=f"`{permute}` on `{view.stage}` needs `{mode}: strict`",
            help=f"write `{mode}: strict`, or leave `{permute}` out: only where all ranks have"
            " equally many heads can a layer take them in the order in which they arrive",
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


def _check_shares(view: StackView) -> Iterator[Finding]:
    """Every rank has a head to work on; `strict` asks for more."""
    size, tp, heads = view.size("sp_ulysses"), view.size("tp"), view.facts.num_attention_heads
    if heads is not None and size * tp > heads:
        yield Finding(
            code="AX054",
            message=f"`sp_ulysses` x `tp` = `{size * tp}` ranks share `{heads}` heads: some would"
            " have none",
            help=f"choose sizes up to `{heads}` together, and cut the sequence further with"
            " `sp_ring`",
            axes=("tp",),
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
            help=f"{each}choose sizes that divide, or leave `{view.name('mode')}: strict` out: any"
            " head count works then",
            axes=("tp",),
        )


def _cost(view: CostView) -> Cost | None:
    """Exchange tokens for heads before attention and back after it: two all-to-alls a layer.

    Queries, keys and values lie in one message. Staging takes another copy of them and of the
    result. A prompt that every rank keeps whole costs a gather of its result over the heads.
    """
    facts, size = view.facts, view.size("sp_ulysses")
    heads, kv_heads, layers = facts.num_attention_heads, facts.num_kv_heads, facts.num_layers
    if heads is None or kv_heads is None or facts.head_dim is None or layers is None:
        return None
    width = view.cut(Part.WIDTH)
    layers = -(-layers // view.cut(Part.LAYERS))
    queries, keys = _heads(-(-heads // width), -(-kv_heads // width), size)
    number = facts.head_dim * view.forward.element_bytes
    whole = view.whole_text
    sent = max(
        own * (sum(queries) - query + 2 * (sum(keys) - key))
        + (sum(group) - own) * query
        + whole * query * (size - 1)
        for group in _groups(view.lengths, size)
        for own, query, key in zip(group, queries, keys, strict=True)
    )
    return Cost(
        sent_bytes=sent * number * layers,
        collectives=(3 if whole else 2) * layers,
        memory_bytes=max(view.lengths) * 2 * (sum(queries) + sum(keys)) * number,
    )


def _heads(heads: int, kv_heads: int, size: int) -> tuple[list[int], list[int]]:
    """Query heads and key heads of each rank.

    A rank has whole groups of heads that share a key head. With fewer groups than ranks several
    ranks have the same key head, and each some of its query heads.
    """
    groups = even(heads, kv_heads)
    if kv_heads >= size:
        keys = even(kv_heads, size)
        starts = [sum(keys[:rank]) for rank in range(size)]
        own = zip(starts, keys, strict=True)
        return [sum(groups[start : start + count]) for start, count in own], list(keys)
    ranks = even(size, kv_heads)
    queries = [n for g, count in zip(groups, ranks, strict=True) for n in even(g, count)]
    return queries, [1] * size


def _groups(lengths: tuple[int, ...], size: int) -> list[tuple[int, ...]]:
    """Tokens of the ranks of each group: consecutive ones exchange with each other."""
    return [lengths[start : start + size] for start in range(0, len(lengths), size)]


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
    serves_fields=frozenset({"mask_sp_padding"}),
    options=Options,
    about_size=frozenset({"sequence_parallel_size"}),
    needs=(
        "nothing; with `mode: strict`, heads divide by sp_ulysses x tp",
        "`a2a_permute` needs `mode: strict`",
    ),
    check=_check,
    cuts=cuts(Part.TOKENS),
    cost=_cost,
)
