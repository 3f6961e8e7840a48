"""Which part of each parameter a rank of a network cut by width holds, as a plan says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from torch import nn

from stagemesh.parallel.modules import block_path, count, matching, sizes, weight_of
from stagemesh.spec.cost import even
from stagemesh.spec.frozen import frozen
from stagemesh.spec.model_plan import HeadTable, ModelPlan, TpRule, TpStyle

_BIAS: Final = "bias"
_WEIGHT: Final = "weight"


@frozen
class Cut:
    """What a rank holds of one parameter."""

    dim: int
    """The dimension that is cut."""
    ranges: tuple[tuple[int, int], ...]
    """Beginnings and lengths of what it holds along it, to be joined in this order."""

    @property
    def length(self) -> int:
        """How much it holds."""
        return sum(length for _, length in self.ranges)


Cuts: TypeAlias = dict[str, Cut]
"""What a rank holds of each parameter that is cut, by the parameter's name in the network."""


def parameter_cuts(plan: ModelPlan, model: nn.Module, ranks: int, rank: int) -> Cuts:
    """Return what one of `ranks` ranks holds of each parameter that is not whole on all of them.

    The plan must have no `bind_findings` for this network and this number of ranks.
    """
    found: Cuts = {}
    for rule in plan.tp:
        for path, module in matching(model, rule.module):
            found.update(_of_module(model, rule, (path, module), (ranks, rank)))
    for table in plan.tables:
        if isinstance(table.value, str):
            for path, module in matching(model, table.module):
                found[f"{path}.{table.value}"] = table_cut(
                    model, table, (path, module), (ranks, rank)
                )
    return found


def table_cut(
    model: nn.Module, table: HeadTable, at: tuple[str, nn.Module], place: tuple[int, int]
) -> Cut:
    """Return what a rank holds of a table that is a parameter."""
    path, module = at
    weight = weight_of(module, str(table.value))
    assert weight is not None
    pieces = count(model, block_path(table.module, path), table.pieces)
    return Cut(dim=table.dim, ranges=(_part(weight.shape[table.dim], pieces, place),))


def _of_module(
    model: nn.Module, rule: TpRule, at: tuple[str, nn.Module], place: tuple[int, int]
) -> Iterator[tuple[str, Cut]]:
    path, module = at
    weight = weight_of(module)
    if weight is None:  # a norm without weights has none to cut
        return
    dim = 1 if rule.style is TpStyle.ROW else 0
    ranges = rule_ranges(model, rule, path, weight.shape[dim], place)
    yield f"{path}.{_WEIGHT}", Cut(dim=dim, ranges=ranges)
    if rule.style is not TpStyle.ROW and weight_of(module, _BIAS) is not None:
        yield f"{path}.{_BIAS}", Cut(dim=0, ranges=ranges)


def rule_ranges(
    model: nn.Module, rule: TpRule, path: str, total: int, place: tuple[int, int]
) -> tuple[tuple[int, int], ...]:
    """Return what a rank holds along the dimension of `total` that a rule cuts."""
    block = block_path(rule.module, path)
    if rule.blocks:
        ranges, start = [], 0
        for size in sizes(model, block, rule.blocks, total):
            first, length = _part(size, size, place)
            ranges.append((start + first, length))
            start += size
        return tuple(ranges)
    pieces = total if rule.pieces is None else count(model, block, rule.pieces)
    return (_part(total, pieces, place),)


def _part(total: int, pieces: int, place: tuple[int, int]) -> tuple[int, int]:
    """Beginning and length of the share of a rank; the first ranks have the larger ones."""
    ranks, rank = place
    each = total // pieces
    if pieces < ranks:  # several ranks hold the same piece
        return rank * pieces // ranks * each, each
    shares = even(pieces, ranks)
    return sum(shares[:rank]) * each, shares[rank] * each
