"""Linear layers and a norm for networks that are written for a mesh: each rank holds its part.

Weights come whole, from a checkpoint; `load` of a layer takes the part that is its own. What cannot
be cut evenly is refused when the layer is made, on all ranks alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import nn
from torch.nn import functional

from stagemesh.parallel.mesh.communicator import Communicator

Result: TypeAlias = torch.Tensor | tuple[torch.Tensor, None]
"""The output; with `return_bias`, beside the bias that is left to be added, which is never one."""


def part_of(what: str, total: int, over: Communicator) -> int:
    """Return how much of `total` each rank has; refused where the ranks do not divide it."""
    size = over.group.size
    if total % size:
        raise ValueError(f"`{total}` {what} cannot be cut into `{size}` equal parts")
    return total // size


def _expect(name: str, whole: torch.Tensor, shape: Sequence[int]) -> None:
    """Refuse values of another shape, which would be cut or spread over what they are not for."""
    if tuple(whole.shape) != tuple(shape):
        raise ValueError(f"`{name}` of `{tuple(whole.shape)}` where `{tuple(shape)}` belongs")


class _Linear(nn.Module):
    """A linear layer whose rank-local sizes are given."""

    def __init__(self, sizes: tuple[int, int], *, bias: bool, return_bias: bool) -> None:
        super().__init__()
        self.return_bias = return_bias
        self.weight = nn.Parameter(torch.empty(sizes[1], sizes[0]), requires_grad=False)
        self.bias: nn.Parameter | None = None
        if bias:
            self.bias = nn.Parameter(torch.empty(sizes[1]), requires_grad=False)

    def result(self, out: torch.Tensor) -> Result:
        """The output, beside the bias that is left to be added (never one) where asked for."""
        return (out, None) if self.return_bias else out


class ReplicatedLinear(_Linear):
    """A linear layer that all ranks hold whole."""

    def __init__(
        self, in_features: int, out_features: int, *, bias: bool = True, return_bias: bool = True
    ) -> None:
        """As `nn.Linear`."""
        super().__init__((in_features, out_features), bias=bias, return_bias=return_bias)

    def forward(self, x: torch.Tensor) -> Result:
        """Multiply; nothing is sent."""
        return self.result(functional.linear(x, self.weight, self.bias))

    def load(self, name: str, whole: torch.Tensor) -> None:
        """Take `weight` or `bias` as it is; raises `ValueError` for another shape."""
        held = self.get_parameter(name)
        _expect(name, whole, held.shape)
        held.copy_(whole)


class ColumnParallelLinear(_Linear):
    """Each rank computes some of the outputs from all inputs."""

    def __init__(
        self,
        sizes: tuple[int, int],
        over: Communicator,
        *,
        bias: bool = True,
        return_bias: bool = True,
        gather_output: bool = False,
    ) -> None:
        """`sizes` are inputs and outputs of the whole layer."""
        own = part_of("outputs", sizes[1], over)
        super().__init__((sizes[0], own), bias=bias, return_bias=return_bias)
        self._over = over
        self._gather_output = gather_output

    def forward(self, x: torch.Tensor) -> Result:
        """Multiply; the outputs of all ranks are put together only where that was asked for."""
        out = functional.linear(x, self.weight, self.bias)
        if self._gather_output:
            lengths = [out.shape[-1]] * self._over.group.size
            out = self._over.all_gather_v(out, out.ndim - 1, lengths)
        return self.result(out)

    def load(self, name: str, whole: torch.Tensor) -> None:
        """Take the own rows of `weight` or `bias`; raises `ValueError` for another shape."""
        held = self.get_parameter(name)
        _expect(name, whole, (len(held) * self._over.group.size, *held.shape[1:]))
        held.copy_(whole.narrow(0, self._over.group.own * len(held), len(held)))


class RowParallelLinear(_Linear):
    """Each rank computes a summand of all outputs from some of the inputs."""

    def __init__(
        self,
        sizes: tuple[int, int],
        over: Communicator,
        *,
        bias: bool = True,
        return_bias: bool = True,
        input_is_parallel: bool = True,
    ) -> None:
        """`sizes` are inputs and outputs of the whole layer."""
        own = part_of("inputs", sizes[0], over)
        super().__init__((own, sizes[1]), bias=bias, return_bias=return_bias)
        self._over = over
        self._input_is_parallel = input_is_parallel

    def forward(self, x: torch.Tensor) -> Result:
        """Multiply, sum over the ranks, and add the bias once, after the sum."""
        if not self._input_is_parallel:
            own = self.weight.shape[1]
            x = x.narrow(-1, self._over.group.own * own, own)
        out = self._over.all_reduce(functional.linear(x, self.weight))
        return self.result(out if self.bias is None else out + self.bias)

    def load(self, name: str, whole: torch.Tensor) -> None:
        """Take the own columns of `weight`; `bias` is whole on all ranks.

        Raises `ValueError` for another shape.
        """
        held = self.get_parameter(name)
        if held is self.weight:
            own = held.shape[1]
            _expect(name, whole, (len(held), own * self._over.group.size))
            whole = whole.narrow(1, self._over.group.own * own, own)
        else:
            _expect(name, whole, held.shape)
        held.copy_(whole)


class QKVParallelLinear(_Linear):
    """Queries, keys and values in one layer: each rank computes those of its heads.

    Where there are fewer heads of keys than ranks, each of them is on several ranks.
    """

    def __init__(
        self,
        hidden_size: int,
        head_size: int,
        heads: tuple[int, int],
        over: Communicator,
        *,
        bias: bool = True,
        return_bias: bool = True,
    ) -> None:
        """`heads` are those of queries and of keys in the whole layer."""
        own_heads = part_of("heads", heads[0], over)
        size = over.group.size
        copies = max(1, size // heads[1])
        if heads[1] * copies % size or heads[0] % heads[1]:
            raise ValueError(f"`{heads[1]}` heads of keys do not fit on `{size}` ranks")
        kv = heads[1] * copies // size
        super().__init__(
            (hidden_size, (own_heads + 2 * kv) * head_size), bias=bias, return_bias=return_bias
        )
        self.num_heads = own_heads
        self.num_kv_heads = kv
        self.head_size = head_size
        self._place = over.group.own
        self._copies = copies
        self._heads = heads

    def forward(self, x: torch.Tensor) -> Result:
        """Multiply; queries, keys and values of the own heads lie behind each other."""
        return self.result(functional.linear(x, self.weight, self.bias))

    @property
    def widths(self) -> tuple[int, int, int]:
        """How wide own queries, keys and values are, to split the output."""
        kv = self.num_kv_heads * self.head_size
        return self.num_heads * self.head_size, kv, kv

    def load(self, name: str, whole: torch.Tensor, shard: str) -> None:
        """Take the own heads of `weight` or `bias` of one of `q`, `k` and `v`.

        Raises `ValueError` for another shape.
        """
        which = "qkv".index(shard)
        place = self._place if which == 0 else self._place // self._copies
        width = self.widths[which]
        held = self.get_parameter(name).narrow(0, sum(self.widths[:which]), width)
        heads = self._heads[min(which, 1)]
        _expect(f"{name} of {shard}", whole, (heads * self.head_size, *held.shape[1:]))
        held.copy_(whole.narrow(0, place * width, width))


class DistributedRMSNorm(nn.Module):
    """The norm of vectors that the ranks hold in parts: it is that of the whole vector."""

    def __init__(self, hidden_size: int, over: Communicator, *, eps: float = 1e-6) -> None:
        """`hidden_size` is that of the whole vector."""
        super().__init__()
        own = part_of("channels", hidden_size, over)
        self.weight = nn.Parameter(torch.empty(own), requires_grad=False)
        self._over = over
        self._hidden_size = hidden_size
        self._eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale by the norm of the whole, in fp32 at least."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        total = self._over.all_reduce(wide.square().sum(-1, keepdim=True))
        normed = wide * torch.rsqrt(total / self._hidden_size + self._eps)
        return (normed * self.weight).to(x.dtype)

    def load(self, whole: torch.Tensor) -> None:
        """Take the own channels of the weight; raises `ValueError` for another shape."""
        own = len(self.weight)
        _expect("weight", whole, (own * self._over.group.size,))
        self.weight.copy_(whole.narrow(0, self._over.group.own * own, own))
