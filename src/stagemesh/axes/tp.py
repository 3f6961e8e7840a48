"""Tensor parallelism: every layer's weights are cut over the ranks of a group."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Final, TypeAlias, cast

from stagemesh.spec.axis import Axis, DeployField, Finding, Owner, StackView, WorldRole
from stagemesh.spec.bounds import Range
from stagemesh.spec.cost import Cost, CostView, Part, Pieces
from stagemesh.spec.diagnostic import counted
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.frozen import frozen
from stagemesh.spec.patterns import Broadcast, TakeRank
from stagemesh.spec.pipeline import ExecutionType

_ENCODER: Final = re.compile(r"text_encoder(_[0-9]+)?")
"""Folders of a checkpoint that hold what encodes text."""


@frozen
class Options:
    """Further keys of a `tp` entry."""

    text_encoder: Annotated[int, Range(minimum=1)] = 1
    """Ranks that share the text encoder inside a diffusion stage: the first of its ranks."""


def _check(view: StackView) -> Iterator[Finding]:
    yield from _check_layers(view)
    size = cast("Options", view.options).text_encoder
    if size > 1:
        yield from _check_encoder(view, size)


def _check_layers(view: StackView) -> Iterator[Finding]:
    size, facts, cut = view.size("tp"), view.facts, _cut(view)
    if size == 1:
        return
    for what, amount in (*cut, ("kv heads", facts.num_kv_heads)):
        if amount is None:
            view.skip(f"`tp` of `{view.stage}`: the checkpoint does not give the number of {what}")
    misfit = _misfit(size, cut, facts)
    if misfit is not None:
        candidates = range(1, (facts.num_attention_heads or 64) + 1)
        fitting = [f"`{each}`" for each in candidates if _misfit(each, cut, facts) is None]
        yield Finding(
            code="AX030",
            message=f"`tp` size `{size}` does not fit the {misfit} of `{view.stage}`",
            help=f"sizes that fit: {', '.join(fitting)}",
        )


_Cut: TypeAlias = tuple[tuple[str, int | None], ...]


def _cut(view: StackView) -> _Cut:
    """What every rank gets an equal part of; experts are cut unless `ep` keeps them whole."""
    facts = view.facts
    cut: _Cut = (
        ("query heads", facts.num_attention_heads),
        ("hidden channels", facts.hidden_size),
        ("feed-forward channels", facts.intermediate_size),
    )
    if facts.num_experts and view.size("ep") == 1:
        return (*cut, ("channels of an expert", facts.moe_intermediate_size))
    return cut


def _misfit(size: int, cut: _Cut, facts: StageFacts) -> str | None:
    """Say the first amount that does not divide; few kv heads are replicated where ranks divide."""
    for what, amount in cut:
        if amount is not None and amount % size:
            return f"`{amount}` {what}"
    heads = facts.num_kv_heads
    if heads is not None and heads % size and size % heads:
        return f"`{heads}` kv heads"
    return None


def _check_encoder(view: StackView, size: int) -> Iterator[Finding]:
    """The text encoder of a diffusion stage lies over ranks that are there."""
    folders, name = view.weight_folders, view.name("text_encoder")
    if view.execution_type is not ExecutionType.DIFFUSION:
        yield Finding(
            code="AX044",
            message=f"`{name}` is for diffusion stages, and `{view.stage}` is none",
            help="leave it out: the size of `tp` is that of the whole stage",
            option="text_encoder",
        )
    elif folders and not any(_ENCODER.fullmatch(folder) for folder in folders):
        yield Finding(
            code="AX046",
            message=f"`{view.stage}` has no text encoder to share over `{size}` ranks",
            help=f"leave `{name}` out, or give it to the stage that encodes text",
            option="text_encoder",
        )
    elif size > view.world:
        yield Finding(
            code="AX045",
            message=f"`{name}` `{size}` exceeds the {counted(view.world, 'rank')} of"
            f" `{view.stage}`",
            help=f"choose a size up to `{view.world}`, or add ranks with an axis",
            option="text_encoder",
        )
    elif view.facts.num_encoder_heads is None:
        view.skip(f"`{name}` of `{view.stage}`: the checkpoint does not give the encoder's heads")
    elif view.facts.num_encoder_heads % size:
        heads = view.facts.num_encoder_heads
        fitting = [f"`{each}`" for each in range(1, heads + 1) if heads % each == 0]
        yield Finding(
            code="AX030",
            message=f"`{name}` `{size}` does not fit the `{heads}` heads of the text encoder of"
            f" `{view.stage}`",
            help=f"sizes that fit: {', '.join(fitting)}",
            option="text_encoder",
        )


def _cuts(size: int, options: object) -> Pieces:
    """All layers by its size, and the text encoder of a diffusion stage by the size of its own."""
    return {Part.WIDTH: size, Part.ENCODERS: cast("Options", options).text_encoder}


def _cost(view: CostView) -> Cost | None:
    """Sum each row-cut linear layer over the ranks, and gather the scores of new tokens.

    An all-reduce of `n` numbers sends `2 * n * (tp - 1) / tp` of them.
    """
    facts, size, number = view.facts, view.size("tp"), view.forward.element_bytes
    if facts.hidden_size is None or facts.num_layers is None:
        return None
    layers = -(-facts.num_layers // view.cut(Part.LAYERS))
    sums = 2 * layers
    if facts.num_row_linears is not None:
        sums = -(-facts.num_row_linears // view.cut(Part.LAYERS))
    summed = (max(view.lengths) + view.whole_text) * facts.hidden_size * number
    scores = view.forward.batch * -(-(facts.vocab_size or 0) // size) * number
    return Cost(
        sent_bytes=sums * -(-2 * summed * (size - 1) // size) + scores * (size - 1),
        collectives=sums + (scores > 0),
    )


AXIS = Axis(
    name="tp",
    summary="tensor parallelism: weights of each layer cut over the ranks",
    fits=frozenset(ExecutionType),
    role=WorldRole.MULTIPLIES_RANKS,
    routing=Broadcast(),
    aggregation=TakeRank(),
    owner=Owner.ENGINE,
    mesh_position=6,
    deploy_fields=(
        DeployField(name="tensor_parallel_size"),
        DeployField(
            name="text_encoder_tp_size",
            member="text_encoder",
            fits=frozenset({ExecutionType.DIFFUSION}),
        ),
    ),
    options=Options,
    acts_alone=frozenset({"text_encoder"}),
    sharing=frozenset({"text_encoder"}),
    needs=(
        "attention heads, hidden and feed-forward channels divide by its size",
        "few kv heads are copied where its size divides by them",
        "channels of experts divide by its size, unless `ep` keeps experts whole",
        "`text_encoder` is at most the ranks of a diffusion stage that has one",
        "heads of the largest text encoder divide by `text_encoder`",
    ),
    check=_check,
    cuts=_cuts,
    cost=_cost,
)
