"""Tensor parallelism: every layer's weights are cut over the ranks of a group."""

from __future__ import annotations

from collections.abc import Iterator

from stagemesh.spec.axis import Axis, Finding, Owner, StackView, WorldRole
from stagemesh.spec.patterns import Broadcast, TakeRank
from stagemesh.spec.pipeline import ExecutionType


def _check(view: StackView) -> Iterator[Finding]:
    size, facts = view.size("tp"), view.facts
    if size == 1:
        return
    amounts = (
        ("query heads", facts.num_attention_heads, False),
        ("kv heads", facts.num_kv_heads, True),
        ("hidden channels", facts.hidden_size, False),
        ("feed-forward channels", facts.intermediate_size, False),
    )
    for what, amount, may_replicate in amounts:
        if amount is None:
            view.skip(f"`tp` of `{view.stage}`: the checkpoint does not give the number of {what}")
        elif amount % size and not (may_replicate and size % amount == 0):
            yield Finding(
                code="AX030",
                message=f"`tp` size `{size}` does not fit the `{amount}` {what} of `{view.stage}`",
                help=f"choose a size that divides `{amount}`",
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
    deploy_field="tensor_parallel_size",
    check=_check,
)
