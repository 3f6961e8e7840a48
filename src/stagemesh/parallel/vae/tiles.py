"""Tiles of one picture on several ranks: bitwise what one rank makes of all of them.

The VAE's own code cuts the picture and blends the tiles, and it runs twice. At first what it asks
of its decoder, or encoder, is only written down. Then each rank works on its tiles, and one gather
brings all of them to all ranks. When the code runs again it is given what came out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, NoReturn

import torch
from torch import nn

from stagemesh.parallel.mesh.communicator import Communicator
from stagemesh.parallel.replacing import Method, method_of, replace_method, replaced
from stagemesh.spec.frozen import frozen
from stagemesh.spec.vae_plan import CausalCache, VaePlan

_DIMS: Final = 5
"""Most dimensions of a clip: sample, channel, frame, row, column."""
_KEPT: Final = "conv_cache"
"""Argument with the frames that the piece in time before has returned."""
_LISTED: Final = "feat_cache"
"""Argument with the list of frames that are kept."""


def share_tiles(plan: VaePlan, vae: nn.Module, over: Communicator) -> None:
    """Let the ranks of a group share the tiles of a VAE, where it works in tiles.

    Raises `LookupError` where the VAE has no such method.
    """
    for half, name in (("encoder", plan.tiles.encode), ("decoder", plan.tiles.decode)):
        shared = _Tiled(plan, vae, half, method_of(vae, name), over)
        replace_method(vae, name, shared.run)


class _AllAskedError(Exception):
    """Tiles are to be blended: everything has been asked for."""


class _Kept:
    """Stands for frames that a piece in time will return for the next."""


@frozen
class _Call:
    """Something that is asked of the encoder or decoder."""

    args: tuple[torch.Tensor, ...]
    """The piece, first."""
    kwargs: Mapping[str, object]
    """What else is said."""
    tile: int
    """Number of the tile that it is a piece of."""


class _Tiled:
    """One way through a VAE, in tiles."""

    def __init__(
        self, plan: VaePlan, vae: nn.Module, half: str, tiled: Method, over: Communicator
    ) -> None:
        self._cache = plan.cache
        self._vae = vae
        self._half = vae.get_submodule(half)
        # what comes behind the encoder would be asked about pieces that are not encoded yet
        self._behind = [
            child
            for name, child in vae.named_children()
            if half == "encoder" and name not in plan.halves
        ]
        self._tiled = tiled
        self._over = over

    def run(self, *args: object, **kwargs: object) -> object:
        """Do what the method of the VAE does, on all ranks of the group."""
        outputs = iter(self._outputs(self._asked(args, kwargs)))

        def answer(*_args: object, **_kwargs: object) -> object:
            output = next(outputs)
            return (output, _Kept()) if self._cache is CausalCache.RETURNED else output

        with replaced(self._half, forward=answer):
            return self._tiled(*args, **kwargs)

    def _asked(self, args: Sequence[object], kwargs: Mapping[str, object]) -> list[_Call]:
        """Write down what the method asks, up to where it begins to blend."""
        calls: list[_Call] = []
        pieces: dict[int, int] = {}

        def write_down(*args: torch.Tensor, **kwargs: object) -> object:
            key = id(kwargs.get(_LISTED if self._cache is CausalCache.LIST else _KEPT))
            is_next = self._cache is not CausalCache.NONE and key in pieces
            tile = pieces[key] if is_next else len(set(pieces.values()))
            calls.append(_Call(args=args, kwargs=kwargs, tile=tile))
            if self._cache is not CausalCache.RETURNED:
                pieces[key if self._cache is CausalCache.LIST else len(calls)] = tile
                return args[0]
            kept = _Kept()
            held.append(kept)
            pieces[id(kept)] = tile
            return args[0], kept

        held: list[_Kept] = []
        with self._as_asking(write_down), suppress(_AllAskedError):
            self._tiled(*args, **kwargs)
        return calls

    @contextmanager
    def _as_asking(self, write_down: Method) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(replaced(self._half, forward=write_down))
            stack.enter_context(replaced(self._vae, blend_v=_end, blend_h=_end))
            for module in self._behind:
                stack.enter_context(replaced(module, forward=_as_it_is))
            yield

    def _outputs(self, calls: Sequence[_Call]) -> list[torch.Tensor]:
        """Work on the own tiles, and return what came out of all calls on all ranks."""
        size, own = self._over.group.size, self._over.group.own
        ranks = shared_out(_weights(calls), size)
        kept: dict[int, object] = {}
        mine = [self._output(call, kept) for call in calls if ranks[call.tile] == own]
        numbers = [
            [n for n, call in enumerate(calls) if ranks[call.tile] == r] for r in range(size)
        ]
        shapes = self._over.all_gather_v(_shapes(mine), 0, [len(each) for each in numbers]).tolist()
        shape_of = dict(zip((n for each in numbers for n in each), shapes, strict=True))
        blank = calls[0].args[0].new_empty(0)
        packed = torch.cat([blank, *(each.reshape(-1) for each in mine)])
        counts = {n: math.prod(shape_of[n]) for n in shape_of}
        lengths = [sum(counts[n] for n in each) for each in numbers]
        everything = self._over.all_gather_v(packed, 0, lengths)
        dims = calls[0].args[0].ndim
        cut = zip(shape_of, everything.split(list(counts.values())), strict=True)
        found = {n: piece.view(shape_of[n][:dims]) for n, piece in cut}
        return [found[n] for n in range(len(calls))]

    def _output(self, call: _Call, kept: dict[int, object]) -> torch.Tensor:
        kwargs = dict(call.kwargs)
        if self._cache is CausalCache.RETURNED:
            kwargs[_KEPT] = kept.get(call.tile)
        output = self._half(*call.args, **kwargs)
        if self._cache is CausalCache.RETURNED:
            output, kept[call.tile] = output
        assert isinstance(output, torch.Tensor)
        return output


def _end(*_args: object, **_kwargs: object) -> NoReturn:
    raise _AllAskedError


def _as_it_is(piece: object, *_args: object, **_kwargs: object) -> object:
    return piece


def _weights(calls: Sequence[_Call]) -> list[int]:
    """How much there is to do for each tile, in numbers of its pieces."""
    weights = [0] * (calls[-1].tile + 1)
    for call in calls:
        weights[call.tile] += call.args[0].numel()
    return weights


def shared_out(weights: Sequence[int], ranks: int) -> list[int]:
    """Return the rank of every tile: the heaviest first, each to the rank that has least to do."""
    load, found = [0] * ranks, [0] * len(weights)
    for tile in sorted(range(len(weights)), key=lambda each: -weights[each]):
        found[tile] = min(range(ranks), key=lambda rank: (load[rank], rank))
        load[found[tile]] += weights[tile]
    return found


def _shapes(outputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """The shapes of outputs, one a row, filled up with ones."""
    rows = [[*each.shape, *[1] * (_DIMS - each.ndim)] for each in outputs]
    return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), _DIMS)
