"""Networks that are cut by width over threads of one process, as their plans say.

The plainest form of what a plan means: slices of weights, a sum after each row, a mean of squares
over all ranks in each norm.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from stagemesh.parallel.modules import matching
from stagemesh.parallel.rehearsal import Example
from stagemesh.parallel.tp_cuts import parameter_cuts
from stagemesh.parallel.width import local_value
from stagemesh.spec.model_plan import ModelPlan, TpStyle

DEADLINE_S = 60.0


class Group:
    """Ranks that add tensors up; every one gets the sum, made in one order."""

    def __init__(self, ranks: int) -> None:
        """For so many threads."""
        self.ranks = ranks
        self._barrier = threading.Barrier(ranks)
        self._slots: list[torch.Tensor] = [torch.empty(0)] * ranks

    def gathered(self, value: torch.Tensor, rank: int) -> list[torch.Tensor]:
        """Return what every rank has, in their order."""
        self._slots[rank] = value
        self._barrier.wait(DEADLINE_S)
        found = list(self._slots)
        self._barrier.wait(DEADLINE_S)
        return found

    def added(self, value: torch.Tensor, rank: int) -> torch.Tensor:
        """Return the sum over all ranks."""
        return torch.stack(self.gathered(value, rank)).sum(0)

    def give_up(self) -> None:
        """Let no one wait for a rank that failed."""
        self._barrier.abort()


def run_cut(plan: ModelPlan, whole: nn.Module, example: Example, ranks: int) -> list[Any]:
    """Run a network on so many ranks of its width, and return what each of them puts out."""
    group = Group(ranks)
    networks = [_cut(plan, whole, group, rank) for rank in range(ranks)]
    return in_threads(group, lambda rank: networks[rank](**copy.deepcopy(dict(example.inputs))))


def in_threads(group: Group, run: Callable[[int], Any]) -> list[Any]:
    """Run every rank in a thread of its own."""
    outputs: list[Any] = [None] * group.ranks

    def one(rank: int) -> None:
        try:
            with torch.no_grad():
                outputs[rank] = run(rank)
        except BaseException:
            group.give_up()
            raise

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(group.ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    return outputs


def _cut(plan: ModelPlan, whole: nn.Module, group: Group, rank: int) -> nn.Module:
    network = copy.deepcopy(whole)
    values = [
        (module, each.name, local_value(module, each, group.ranks))
        for each in plan.attributes
        for _, module in matching(network, each.module)
    ]
    for name, cut in parameter_cuts(plan, network, group.ranks, rank).items():
        path, _, parameter = name.rpartition(".")
        module = network.get_submodule(path)
        weight = module.get_parameter(parameter)
        parts = [weight.narrow(cut.dim, *each) for each in cut.ranges]
        setattr(module, parameter, nn.Parameter(torch.cat(parts, cut.dim)))
    for module, name, value in values:
        setattr(module, name, value)
    for rule in plan.tp:
        for _, module in matching(network, rule.module):
            if rule.style is TpStyle.ROW:
                _sum(module, group, rank)
            elif rule.style is TpStyle.NORM:
                _normalise(module, group, rank)
    for table in plan.tables:
        if isinstance(table.value, int):
            for _, module in matching(network, table.module):
                module.register_forward_hook(_narrowing(table.value, table.dim, group, rank))
    return network


def _sum(module: Any, group: Group, rank: int) -> None:  # noqa: ANN401  a linear layer
    bias, module.bias = module.bias, None

    def add(_module: nn.Module, _args: object, output: torch.Tensor) -> torch.Tensor:
        total = group.added(output, rank)
        return total if bias is None else total + bias

    module.register_forward_hook(add)


def _normalise(module: Any, group: Group, rank: int) -> None:  # noqa: ANN401  a norm
    def forward(x: torch.Tensor) -> torch.Tensor:
        squares = group.added(x.float().pow(2).sum(-1, keepdim=True), rank)
        mean = squares / (x.shape[-1] * group.ranks)
        out: torch.Tensor = x * torch.rsqrt(mean + module.eps) * module.weight
        return out

    module.forward = forward


def _narrowing(index: int, dim: int, group: Group, rank: int) -> Callable[..., object]:
    def narrow(_module: nn.Module, _args: object, output: tuple[torch.Tensor, ...]) -> object:
        changed = list(output)
        changed[index] = output[index].chunk(group.ranks, dim)[rank]
        return tuple(changed)

    return narrow
