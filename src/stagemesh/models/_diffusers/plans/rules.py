"""Rules that the plans of several families share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from stagemesh.spec.model_plan import HeadAttribute, TpRule, TpStyle

HEADS: Final = "heads"
"""Attribute with the number of heads in most attention modules of `diffusers`."""


def attention(
    block: str, name: str, *, exit_name: str | None = "to_out.0", optional: bool = False
) -> Iterator[TpRule]:
    """Queries, keys and values by heads, and what puts heads together again."""
    pieces = f"{name}.{HEADS}" if block else HEADS
    for part in ("to_q", "to_k", "to_v"):
        yield TpRule(
            module=f"{block}.{name}.{part}",
            style=TpStyle.COLUMN,
            pieces=pieces,
            optional=optional,
        )
    if exit_name is not None:
        yield TpRule(
            module=f"{block}.{name}.{exit_name}",
            style=TpStyle.ROW,
            pieces=pieces,
            optional=optional,
        )


def added_attention(block: str, name: str) -> Iterator[TpRule]:
    """The same of the second stream of a double block."""
    for part in ("add_q_proj", "add_k_proj", "add_v_proj"):
        yield TpRule(
            module=f"{block}.{name}.{part}", style=TpStyle.COLUMN, pieces=f"{name}.{HEADS}"
        )
    yield TpRule(module=f"{block}.{name}.to_add_out", style=TpStyle.ROW, pieces=f"{name}.{HEADS}")


def norms(block: str, *names: str, optional: bool = False) -> Iterator[TpRule]:
    """Norms over all heads together; the attention that they belong to is before the last dot."""
    for name in names:
        pieces = f"{name.rpartition('.')[0]}.{HEADS}"
        yield TpRule(module=f"{block}.{name}", style=TpStyle.NORM, pieces=pieces, optional=optional)


def feed_forward(
    block: str, entries: Iterable[str], exit_name: str, *, optional: bool = False
) -> Iterator[TpRule]:
    """Channels in between are each on their own, so any number of ranks can have them."""
    for name in entries:
        yield TpRule(module=f"{block}.{name}", style=TpStyle.COLUMN, uneven=True, optional=optional)
    yield TpRule(module=f"{block}.{exit_name}", style=TpStyle.ROW, uneven=True, optional=optional)


def network(block: str, name: str) -> Iterator[TpRule]:
    """The usual `FeedForward` of `diffusers`."""
    yield from feed_forward(block, (f"{name}.net.0.proj",), f"{name}.net.2")


def counted(rules: Iterable[TpRule], name: str) -> Iterator[TpRule]:
    """Imported rules: those inside of the attention `name` count heads, others are uneven."""
    for rule in rules:
        if f".{name}." in f".{rule.module}":
            yield replace(rule, pieces=f"{name}.{HEADS}")
        else:
            yield replace(rule, uneven=not rule.blocks)


def head_counts(*modules: str, optional: bool = False) -> tuple[HeadAttribute, ...]:
    """The number of heads of each of these modules."""
    return tuple(HeadAttribute(module=each, name=HEADS, optional=optional) for each in modules)
