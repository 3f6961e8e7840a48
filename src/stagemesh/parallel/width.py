"""A network that is left with what one rank of a cut width holds of it, on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import nn

from stagemesh.parallel.modules import block_path, count, matching, weight_of
from stagemesh.parallel.tp_cuts import Cut, parameter_cuts
from stagemesh.spec.model_plan import HeadAttribute, HeadTable, ModelPlan, TpStyle

_Output: TypeAlias = torch.Tensor | tuple[torch.Tensor, ...]


def cut_width(plan: ModelPlan, network: nn.Module, ranks: int, rank: int = 0) -> None:
    """Leave weights, attributes and tables what one of `ranks` ranks has of them.

    All sizes are read before any of them changes: one may count what another one cuts.
    """
    cuts = parameter_cuts(plan, network, ranks, rank)
    tables = [
        (module, table, path, count(network, block_path(table.module, path), table.pieces))
        for table in plan.tables
        if isinstance(table.value, int)
        for path, module in matching(network, table.module)
    ]
    values = [
        (module, each.name, local_value(module, each, ranks))
        for each in plan.attributes
        for _, module in matching(network, each.module)
    ]
    for name, cut in cuts.items():
        path, _, parameter = name.rpartition(".")
        module = network.get_submodule(path)
        weight = weight_of(module, parameter)
        assert weight is not None
        setattr(module, parameter, nn.Parameter(_part(weight, cut), requires_grad=False))
    for rule in plan.tp:
        if rule.style is TpStyle.NORM:
            for _, module in matching(network, rule.module):
                _narrow_norm(module, ranks)
    for module, name, value in values:
        setattr(module, name, value)
    for module, table, path, heads in tables:
        module.register_forward_hook(_narrowing(table, path, (heads, ranks, rank)))


def _part(weight: torch.Tensor, cut: Cut) -> torch.Tensor:
    """Copy what a rank holds, so that the rest of the weight is let go of."""
    pieces = [weight.detach().narrow(cut.dim, start, length) for start, length in cut.ranges]
    return torch.cat(pieces, cut.dim).contiguous()


def local_value(module: nn.Module, attribute: HeadAttribute, ranks: int) -> int:
    """What an attribute of a network that is still whole holds on one of `ranks` ranks."""
    if attribute.ratio is None:
        return max(count(module, "", attribute.name) // ranks, 1)
    over, under = (count(module, "", name) for name in attribute.ratio)
    return (over // ranks) // max(under // ranks, 1)


def _narrow_norm(module: nn.Module, ranks: int) -> None:
    """Norms of torch compare what they are given with the shape that they were made for."""
    if isinstance(module, nn.RMSNorm | nn.LayerNorm):
        module.normalized_shape = (module.normalized_shape[0] // ranks,)


def _narrowing(table: HeadTable, path: str, pieces: tuple[int, int, int]) -> Callable[..., object]:
    index, dim = int(table.value), table.dim
    heads, ranks, rank = pieces

    def narrow(_module: nn.Module, _args: object, output: _Output) -> object:
        each = output if isinstance(output, torch.Tensor) else output[index]
        if dim >= each.ndim or each.shape[dim] % heads:
            shape = tuple(each.shape)
            what = f"output `{index}` of `{path}` has no `{heads}` heads along `{dim}`"
            message = f"{what}: `{shape}`"
            raise ValueError(message)
        length = each.shape[dim] // ranks
        local = each.narrow(dim, rank * length, length)
        if isinstance(output, torch.Tensor):
            return local
        return type(output)(local if at == index else one for at, one in enumerate(output))

    return narrow
