"""Networks whose tokens are cut over threads of one process, as their plans say.

The plainest form: slices of tensors, and all keys and values for every query of a site.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from stagemesh.parallel.attention_calls import follow
from stagemesh.parallel.modules import matching
from stagemesh.parallel.rehearsal import Example
from stagemesh.spec.cost import even
from stagemesh.spec.model_plan import ModelPlan, SiteRole, Split
from tests.models.diffusers.cut_by_threads import Group, in_threads


def run_tokens(plan: ModelPlan, whole: nn.Module, example: Example, ranks: int) -> list[Any]:
    """Run a network on so many ranks that share tokens, and return what each of them puts out."""
    group = Group(ranks)
    made = [Shared(plan, copy.deepcopy(whole), example.lengths, group, r) for r in range(ranks)]
    return in_threads(group, lambda rank: made[rank].run(copy.deepcopy(dict(example.inputs))))


class Shared(TorchFunctionMode):
    """One rank: its network with the hooks of a plan, and attention over what all ranks have."""

    def __init__(
        self,
        plan: ModelPlan,
        network: nn.Module,
        lengths: Mapping[str, int],
        group: Group,
        rank: int,
    ) -> None:
        """Bind the plan."""
        super().__init__()
        self._network, self._lengths = network, lengths
        self._group, self._rank = group, rank
        self._exchanging = {
            path
            for site in plan.sites
            if site.role is SiteRole.SELF
            for path, _ in matching(network, site.module)
        }
        self._path = follow(network)
        for split in plan.splits:
            for _, module in matching(network, split.module):
                self._bind(split, module)
        for gather in plan.gathers:
            for _, module in matching(network, gather.module):
                module.register_forward_hook(self._gathering(gather.dim))

    def run(self, inputs: dict[str, object]) -> object:
        """Run it."""
        with self:
            return self._network(**inputs)

    def _bind(self, split: Split, module: nn.Module) -> None:
        def cut_input(_module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:  # noqa: ANN401
            given = inspect.signature(module.forward).bind_partial(*args, **kwargs)
            value = given.arguments.get(str(split.value))
            if value is not None:
                given.arguments[str(split.value)] = self._cut(split, value)
            return given.args, given.kwargs

        def cut_output(_module: nn.Module, _args: object, output: Any) -> object:  # noqa: ANN401
            changed = list(output)
            changed[int(split.value)] = self._cut(split, changed[int(split.value)])
            return tuple(changed)

        if isinstance(split.value, int):
            module.register_forward_hook(cut_output)
        else:
            module.register_forward_pre_hook(cut_input, with_kwargs=True)

    def _cut(self, split: Split, value: Any) -> Any:  # noqa: ANN401  a tensor or several
        if isinstance(value, list | tuple):
            return type(value)(self._cut(split, each) for each in value)
        if split.rank not in (None, value.ndim) or value.shape[split.dim] == 1:
            return value
        found = []
        pieces = value.split([self._lengths[each] for each in split.streams], split.dim)
        for piece in pieces:
            shares = even(piece.shape[split.dim], self._group.ranks)
            found.append(piece.split(shares, split.dim)[self._rank])
        return torch.cat(found, split.dim)

    def _gathering(self, dim: int) -> Callable[..., object]:
        def gather(_module: nn.Module, _args: object, output: torch.Tensor) -> torch.Tensor:
            return torch.cat(self._group.gathered(output, self._rank), dim)

        return gather

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        """Give the queries of a site the keys and values of all ranks."""
        given = dict(kwargs or {})
        if func is functional.scaled_dot_product_attention and self._is_exchanging():
            names = ("query", "key", "value", "attn_mask")
            given |= dict(zip(names, args, strict=False))
            args = ()
            for name in ("key", "value"):
                given[name] = torch.cat(self._group.gathered(given[name], self._rank), -2)
            if given.get("attn_mask") is not None:
                masks = self._group.gathered(given["attn_mask"], self._rank)
                given["attn_mask"] = torch.cat(masks, -1)
        return func(*args, **given)

    def _is_exchanging(self) -> bool:
        return self._path[-1] in self._exchanging
