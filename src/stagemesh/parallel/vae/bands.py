"""Bands of one picture on several ranks: exactly the whole picture, up to the order of sums.

Each rank has a band of rows, or of columns. Modules that see rows of their neighbours are given
them for as long as they run: they pad a band that is longer, and what the padding has touched is
cut off again. Statistics are those of the whole picture; what sees all of it is given all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from stagemesh.parallel.mesh.communicator import Communicator
from stagemesh.parallel.replacing import Method, replace_method
from stagemesh.parallel.sequence.cuts import balanced, starts
from stagemesh.parallel.vae.check import halo_of, leaves, step_of
from stagemesh.spec.vae_plan import VaePlan, VaeRole


def cut_bands(plan: VaePlan, vae: nn.Module, over: Communicator, dim: int) -> None:
    """Let each rank of a group work on a band of rows (`dim` -2) or of columns (-1)."""
    for name in plan.halves:
        half = vae.get_submodule(name)
        found = [(plan.role(type(module).__name__), module) for _, module in leaves(plan, half)]
        bands = _Bands(over, dim, math.prod(step_of(module, dim) for _, module in found))
        for role, module in found:
            bands.bind(role, module)
        replace_method(half, "forward", bands.whole(half.forward))


class _Bands:
    """One half of a VAE, on bands whose lengths are whole multiples of all of its steps."""

    def __init__(self, over: Communicator, dim: int, unit: int) -> None:
        self._over = over
        self._dim = dim
        self._unit = unit
        self._lengths: tuple[int, ...] = ()
        own, size = over.group.own, over.group.size
        self._is_first, self._is_last = own == 0, own == size - 1

    def bind(self, role: VaeRole | None, module: nn.Module) -> None:
        """Let a module do what it has to on a band."""
        forward: Method = module.forward
        if role in (VaeRole.CONV, VaeRole.DOWN):
            halo, step = halo_of(module, role, self._dim), step_of(module, self._dim)
            before = -(-halo.above // step) * step  # a band begins at a whole step
            if before or halo.below:
                replace_method(module, "forward", self._conv(forward, (before, halo.below), step))
        elif role is VaeRole.STATISTICS:
            assert isinstance(module, nn.GroupNorm)
            replace_method(module, "forward", self._norm(module))
        elif role is VaeRole.GATHERED:
            replace_method(module, "forward", self._gathering(forward))
        elif role is VaeRole.PAD:
            assert isinstance(module, nn.ZeroPad2d)
            replace_method(module, "forward", self._pad(module))

    def whole(self, forward: Method) -> Method:
        """Cut what comes into the half, and gather what comes out of it."""

        def run(picture: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
            units, rest = divmod(picture.shape[self._dim], self._unit)
            size = self._over.group.size
            if rest or units < size:
                message = (
                    f"`{picture.shape[self._dim]}` along dim `{self._dim}` cannot be cut into"
                    f" `{size}` bands of whole multiples of `{self._unit}`"
                )
                raise ValueError(message)
            self._lengths = tuple(each * self._unit for each in balanced(units, size))
            return self._gathered(_tensor(forward(self._own_of(picture), *args, **kwargs)))

        return run

    def _scaled(self, own: int) -> list[int]:
        """Lengths of all bands where the own one is so long."""
        return [each * own // self._lengths[self._over.group.own] for each in self._lengths]

    def _gathered(self, band: torch.Tensor) -> torch.Tensor:
        return self._over.all_gather_v(band, self._dim, self._scaled(band.shape[self._dim]))

    def _own_of(self, picture: torch.Tensor) -> torch.Tensor:
        total, own = picture.shape[self._dim], self._over.group.own
        lengths = [each * total // sum(self._lengths) for each in self._lengths]
        return picture.narrow(self._dim, starts(lengths)[own], lengths[own])

    def _gathering(self, forward: Method) -> Method:
        def run(band: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
            return self._own_of(_tensor(forward(self._gathered(band), *args, **kwargs)))

        return run

    def _conv(self, forward: Method, halo: tuple[int, int], step: int) -> Method:
        """Give a convolution rows of its neighbours, and cut off what its own padding has touched.

        Whatever has rows is a band: a causal convolution is given frames that were kept as well.
        """
        start = 0 if self._is_first else halo[0] // step

        def run(*args: object, **kwargs: object) -> torch.Tensor:
            band = _tensor(args[0])
            longer = [
                self._extended(each, halo) if isinstance(each, torch.Tensor) else each
                for each in args
            ]
            found = _tensor(forward(*longer, **kwargs))
            # behind the last band lies what the module pads, or what was padded before
            length = band.shape[self._dim] // step
            length = found.shape[self._dim] - start if self._is_last else length
            return found.narrow(self._dim, start, length)

        return run

    def _extended(self, band: torch.Tensor, halo: tuple[int, int]) -> torch.Tensor:
        """Put rows of the neighbours at both ends of a band, as many as there are neighbours."""
        size, own = self._over.group.size, self._over.group.own
        before, below = halo
        length = band.shape[self._dim]
        if min(self._scaled(length)) < max(halo):
            message = f"bands of `{min(self._scaled(length))}` are shorter than a halo"
            raise ValueError(message)
        nothing = band.narrow(self._dim, 0, 0)
        sends = [nothing] * size
        shapes = [nothing.shape] * size
        if not self._is_last:
            sends[own + 1] = band.narrow(self._dim, length - before, before)
            shapes[own + 1] = band.narrow(self._dim, 0, below).shape
        if not self._is_first:
            sends[own - 1] = band.narrow(self._dim, 0, below)
            shapes[own - 1] = band.narrow(self._dim, 0, before).shape
        sends[own], shapes[own] = band, band.shape
        return torch.cat(self._over.all_to_all_v(sends, shapes), self._dim)

    def _pad(self, module: nn.ZeroPad2d) -> Method:
        """Pad only where the picture ends."""
        sides = list(module.padding)
        begin = -2 * (self._dim + 1)  # columns come first, then rows
        sides[begin] = sides[begin] if self._is_first else 0
        sides[begin + 1] = sides[begin + 1] if self._is_last else 0

        def run(band: torch.Tensor) -> torch.Tensor:
            return nn.functional.pad(band, sides)

        return run

    def _norm(self, module: nn.GroupNorm) -> Method:
        """Normalise groups of channels by the mean and the variance of the whole picture."""

        def run(band: torch.Tensor) -> torch.Tensor:
            length = band.shape[self._dim]
            share = sum(self._scaled(length)) / length
            wide = band if band.dtype == torch.float64 else band.float()
            groups = wide.reshape(band.shape[0], module.num_groups, -1)
            total = groups.shape[-1] * share
            mean = self._over.all_reduce(groups.sum(-1)) / total
            apart = groups - mean[..., None]
            variance = self._over.all_reduce(apart.square().sum(-1)) / total
            normal = (apart * torch.rsqrt(variance + module.eps)[..., None]).view(band.shape)
            return _scaled_by(module, normal).to(band.dtype)

        return run


def _scaled_by(module: nn.GroupNorm, normal: torch.Tensor) -> torch.Tensor:
    if not module.affine:
        return normal
    shape: Sequence[int] = (1, -1, *[1] * (normal.ndim - 2))
    return normal * module.weight.view(shape) + module.bias.view(shape)


def _tensor(value: object) -> torch.Tensor:
    assert isinstance(value, torch.Tensor)
    return value
