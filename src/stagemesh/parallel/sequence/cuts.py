"""How tokens and heads are shared out: as evenly as can be, the first ranks have one more."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch

from stagemesh.parallel.mesh.communicator import Communicator
from stagemesh.spec.frozen import frozen


@frozen
class HeadCut:
    """Heads that one rank of a Ulysses group computes."""

    start: int
    """Its first query head."""
    heads: int
    """How many query heads."""
    kv_start: int
    """Its first head of keys and values."""
    kv_heads: int
    """How many of those."""

    def kv_of(self, group: int) -> list[int]:
        """Return the own key head of every own query head, where `group` queries share one."""
        return [(self.start + n) // group - self.kv_start for n in range(self.heads)]


def balanced(total: int, ranks: int) -> tuple[int, ...]:
    """Return how much each rank has."""
    base, longer = divmod(total, ranks)
    return tuple(base + (place < longer) for place in range(ranks))


def starts(lengths: Sequence[int]) -> tuple[int, ...]:
    """Return where each part begins."""
    return tuple(accumulate(lengths, initial=0))[:-1]


def head_cuts(heads: int, kv_heads: int, ranks: int) -> tuple[HeadCut, ...]:
    """Return the heads of every rank.

    Where there are heads of keys for all ranks, no such head is on two of them; else queries are
    shared out, and a rank has the keys that its queries need.
    """
    if heads % kv_heads:
        raise ValueError(f"`{heads}` query heads do not share `{kv_heads}` heads of keys")
    group = heads // kv_heads
    if kv_heads >= ranks:
        lengths = balanced(kv_heads, ranks)
        return tuple(
            HeadCut(start=at * group, heads=length * group, kv_start=at, kv_heads=length)
            for at, length in zip(starts(lengths), lengths, strict=True)
        )
    lengths = balanced(heads, ranks)
    return tuple(
        _needed(at, length, group) for at, length in zip(starts(lengths), lengths, strict=True)
    )


def _needed(start: int, heads: int, group: int) -> HeadCut:
    kv_start = start // group
    kv_end = -(-(start + heads) // group) if heads else kv_start
    return HeadCut(start=start, heads=heads, kv_start=kv_start, kv_heads=kv_end - kv_start)


def sp_shard(
    tensor: torch.Tensor, dim: int, over: Communicator, *, validate: bool = True
) -> torch.Tensor:
    """Return the own part of a tensor that all ranks hold.

    With `validate`, a length that the ranks do not divide is refused; without it, the first ranks
    have one more.
    """
    size, length = over.group.size, tensor.shape[dim]
    if validate and length % size:
        raise ValueError(f"`{length}` along dim `{dim}` cannot be cut into `{size}` equal parts")
    lengths, own = balanced(length, size), over.group.own
    return tensor.narrow(dim, starts(lengths)[own], lengths[own])


def sp_gather(
    tensor: torch.Tensor, dim: int, over: Communicator, *, length: int | None = None
) -> torch.Tensor:
    """Return the whole of which every rank holds a part, as `sp_shard` has cut it.

    `length` is that of the whole; left out where all parts are equally long.
    """
    size, own = over.group.size, tensor.shape[dim]
    lengths = balanced(own * size if length is None else length, size)
    if lengths[over.group.own] != own:
        raise ValueError(f"`{own}` along dim `{dim}` is no part of `{length}` for `{size}` ranks")
    return over.all_gather_v(tensor, dim, lengths)
