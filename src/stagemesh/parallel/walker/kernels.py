"""Layers of a network cut by width that have to ask the other ranks."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from torch.nn import functional

from stagemesh.errors import ActivityError
from stagemesh.parallel.mesh.communicator import Traffic, reduced_bytes
from stagemesh.parallel.replacing import replace_method
from stagemesh.parallel.walker.bound import Bound


def bind_row(bound: Bound, path: str, module: nn.Module, _pattern: str) -> None:
    """Sum what all ranks put out, and add the bias once, after that."""
    if not isinstance(module, nn.Linear):
        raise ActivityError(f"`{path}` is no linear layer, but a `{type(module).__name__}`")
    over = bound.groups.tp

    def forward(x: torch.Tensor) -> torch.Tensor:
        bound.activity.done(path)
        bias = cast("torch.Tensor | None", module.bias)
        part = functional.linear(x, module.weight)
        bound.activity.expect(over, _summed(part, over.group.size))
        out = over.all_reduce(part)
        return out if bias is None else out + bias

    bound.activity.owe(path, f"`{path}` never ran, and its ranks summed nothing")
    replace_method(module, "forward", forward)


def bind_norm(bound: Bound, path: str, module: nn.Module, _pattern: str) -> None:
    """Normalise by the mean of squares over the channels of all ranks."""
    if not isinstance(module, nn.RMSNorm):
        raise ActivityError(f"`{path}` is no `RMSNorm`, but a `{type(module).__name__}`")
    over = bound.groups.tp

    def forward(x: torch.Tensor) -> torch.Tensor:
        bound.activity.done(path)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        squares = wide.square().sum(-1, keepdim=True)
        bound.activity.expect(over, _summed(squares, over.group.size))
        mean = over.all_reduce(squares) / (x.shape[-1] * over.group.size)
        eps = torch.finfo(x.dtype).eps if module.eps is None else module.eps
        weight = cast("torch.Tensor | None", module.weight)
        normal = (wide * torch.rsqrt(mean + eps)).to(x.dtype)
        return normal if weight is None else normal * weight

    bound.activity.owe(path, f"`{path}` never ran, and its ranks summed nothing")
    replace_method(module, "forward", forward)


def _summed(part: torch.Tensor, ranks: int) -> Traffic:
    return Traffic(calls=1, sent_bytes=reduced_bytes(part.nbytes, ranks))
