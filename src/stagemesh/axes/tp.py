"""Tensor parallelism: every layer's weights are cut over the ranks of a group."""

from __future__ import annotations

from collections.abc import Iterator

from stagemesh.spec.axis import Axis, DeployField, Finding, Owner, StackView, WorldRole
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.patterns import Broadcast, TakeRank
from stagemesh.spec.pipeline import ExecutionType


def _check(view: StackView) -> Iterator[Finding]:
    size, facts = view.size("tp"), view.facts
    if size == 1:
        return
    for what, amount in (*_cut(facts), ("kv heads", facts.num_kv_heads)):
        if amount is None:
            view.skip(f"`tp` of `{view.stage}`: the checkpoint does not give the number of {what}")
    misfit = _misfit(size, facts)
    if misfit is not None:
        candidates = range(1, (facts.num_attention_heads or 64) + 1)
        fitting = [f"`{each}`" for each in candidates if _misfit(each, facts) is None]
        yield Finding(
            code="AX030",
            message=f"`tp` size `{size}` does not fit the {misfit} of `{view.stage}`",
            help=f"sizes that fit: {', '.join(fitting)}",
        )


def _cut(facts: StageFacts) -> tuple[tuple[str, int | None], ...]:
    """What every rank gets an equal part of."""
    return (
        ("query heads", facts.num_attention_heads),
        ("hidden channels", facts.hidden_size),
        ("feed-forward channels", facts.intermediate_size),
    )


def _misfit(size: int, facts: StageFacts) -> str | None:
    """Say the first amount that does not divide; few kv heads are replicated where ranks divide."""
    for what, amount in _cut(facts):
        if amount is not None and amount % size:
            return f"`{amount}` {what}"
    heads = facts.num_kv_heads
    if heads is not None and heads % size and size % heads:
        return f"`{heads}` kv heads"
    return None


AXIS = Axis(
    name="tp",
    summary="tensor parallelism: weights of each layer cut over the ranks",
    fits=frozenset(ExecutionType),
    role=WorldRole.MULTIPLIES_RANKS,
    routing=Broadcast(),
    aggregation=TakeRank(),
    owner=Owner.ENGINE,
    mesh_position=6,
    deploy_fields=(DeployField(name="tensor_parallel_size"),),
    check=_check,
)
