"""Branches of guidance on the ranks of one group: the same bits as one after the other.

Every rank runs its share of the branches; one gather brings all outputs of all branches to all
ranks, which combine them alike. A branch may have several outputs, of any shapes and types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import torch

from stagemesh.parallel.mesh.communicator import Communicator, as_bytes
from stagemesh.parallel.sequence.cuts import balanced, starts
from stagemesh.spec.model_plan import Formula, Guidance, Normalise

Outputs: TypeAlias = tuple[torch.Tensor, ...]
Branch: TypeAlias = Callable[[], Outputs]


def run_branches(branches: Sequence[Branch], over: Communicator) -> list[Outputs]:
    """Return the outputs of all branches, in their order, on every rank.

    The outputs of one branch have the shapes and types of those of another. More ranks than
    branches are refused on all ranks, before any branch runs.
    """
    size = over.group.size
    if size > len(branches):
        raise ValueError(f"`{size}` ranks for `{len(branches)}` branches of guidance")
    counts = balanced(len(branches), size)
    first, count = starts(counts)[over.group.own], counts[over.group.own]
    own = [branch() for branch in branches[first : first + count]]
    packed = torch.cat([as_bytes(each) for outputs in own for each in outputs])
    length = len(packed) // count
    everything = over.all_gather_v(packed, 0, [length * each for each in counts])
    return [_unpacked(piece, own[0]) for piece in everything.split(length)]


def _unpacked(piece: torch.Tensor, like: Outputs) -> Outputs:
    """Cut the bytes of one branch into its outputs. Copies: a type must begin where it may."""
    parts = piece.split([math.prod(each.shape) * each.itemsize for each in like])
    return tuple(
        part.clone().view(each.dtype).view(each.shape)
        for part, each in zip(parts, like, strict=True)
    )


def guided(
    positive: Outputs, negative: Outputs, scale: float, how: Guidance, *, factor: float = 1.0
) -> Outputs:
    """Combine each output of two branches as a plan says, in the order of its formula.

    `factor` is that of the normalisations which have one.
    """
    found = []
    for with_prompt, without in zip(positive, negative, strict=True):
        base = without if how.combine is Formula.FROM_NEGATIVE else with_prompt
        combined = base + scale * (with_prompt - without)
        found.append(_NORMALISE[how.normalise](with_prompt, combined, factor))
    return tuple(found)


def _as_it_is(_positive: torch.Tensor, combined: torch.Tensor, _factor: float) -> torch.Tensor:
    return combined


def _last_dim(positive: torch.Tensor, combined: torch.Tensor, _factor: float) -> torch.Tensor:
    wanted = torch.linalg.vector_norm(positive, dim=-1, keepdim=True)
    had = torch.linalg.vector_norm(combined, dim=-1, keepdim=True)
    same: torch.Tensor = combined * (wanted / _not_zero(had))
    return same


def _std(positive: torch.Tensor, combined: torch.Tensor, factor: float) -> torch.Tensor:
    dims = tuple(range(1, positive.ndim))
    wanted = positive.std(dim=dims, keepdim=True)
    same = combined * (wanted / _not_zero(combined.std(dim=dims, keepdim=True)))
    return factor * same + (1 - factor) * combined


def _clamp(positive: torch.Tensor, combined: torch.Tensor, factor: float) -> torch.Tensor:
    dims = tuple(range(1, positive.ndim))
    most = torch.linalg.vector_norm(positive, dim=dims, keepdim=True) * factor
    had = torch.linalg.vector_norm(combined, dim=dims, keepdim=True)
    return torch.where(had > most, combined * (most / _not_zero(had)), combined)


def _not_zero(lengths: torch.Tensor) -> torch.Tensor:
    """What is nothing is not divided: it stays what it is."""
    return lengths.masked_fill(lengths == 0, 1)


_NORMALISE: Final[dict[Normalise, Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]]] = {
    Normalise.NONE: _as_it_is,
    Normalise.LAST_DIM: _last_dim,
    Normalise.STD: _std,
    Normalise.CLAMP: _clamp,
}
"""What each way does: from the positive output, the combined one and a factor. Samples of a batch,
along the first dimension, do not know of each other."""
