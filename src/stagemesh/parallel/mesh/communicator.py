"""The communicator: what ranks of one axis say to each other, counted.

Bytes are logical: what a rank sends by the formulas of the operations, whatever a back end does.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stagemesh.parallel.mesh.links import Link, Pending
from stagemesh.parallel.mesh.ranks import Group, GroupRank
from stagemesh.spec.frozen import frozen


@frozen
class Traffic:
    """What one rank has done along an axis."""

    calls: int = 0
    """Operations with at least one other rank."""
    sent_bytes: int = 0
    """Bytes sent to others."""

    def __add__(self, other: Traffic) -> Traffic:
        """Return both, one after the other."""
        return Traffic(
            calls=self.calls + other.calls, sent_bytes=self.sent_bytes + other.sent_bytes
        )


class Exchange:
    """What comes in from one rank while something goes out to another."""

    def __init__(self, received: torch.Tensor, pending: Pending | None) -> None:
        """Keep what is being filled, and what is waited for."""
        self._received = received
        self._pending = pending

    def wait(self) -> torch.Tensor:
        """Return what has come in."""
        if self._pending is not None:
            self._pending.wait()
            self._pending = None
        return self._received


class Communicator:
    """The operations of one group. A group of one rank says nothing and counts nothing."""

    def __init__(self, group: Group, link: Link | None) -> None:
        """`link` connects the group; a group of one has none."""
        assert (link is None) == (group.size == 1)
        self.group = group
        self.traffic = Traffic()
        self._link = link

    def all_to_all_v(
        self, sends: Sequence[torch.Tensor], shapes: Sequence[Sequence[int]]
    ) -> list[torch.Tensor]:
        """Send a tensor to every place; return those of every place, whose shapes are given."""
        own = self.group.own
        received = [
            sends[own] if place == own else sends[0].new_empty(tuple(shape))
            for place, shape in enumerate(shapes)
        ]
        if self._link is not None:
            blank = sends[0].new_empty(0)
            out = [blank if n == own else each for n, each in enumerate(sends)]
            into = [blank if n == own else each for n, each in enumerate(received)]
            self._count(sum(each.nbytes for each in out))
            self._link.all_to_all(
                [as_bytes(each) for each in out], [as_bytes(each) for each in into]
            ).wait()
        return received

    def exchange(
        self, sent: torch.Tensor, to: GroupRank, shape: Sequence[int], source: GroupRank
    ) -> Exchange:
        """Begin to send a tensor to one place, and to take one of this shape from another."""
        if self._link is None:
            return Exchange(sent, None)
        received = sent.new_empty(tuple(shape))
        blank = as_bytes(sent.new_empty(0))
        out, into = [blank] * self.group.size, [blank] * self.group.size
        out[to], into[source] = as_bytes(sent), as_bytes(received)
        self._count(sent.nbytes)
        return Exchange(received, self._link.all_to_all(out, into))

    def all_gather_v(self, tensor: torch.Tensor, dim: int, lengths: Sequence[int]) -> torch.Tensor:
        """Return the tensors of all places joined along `dim`, where they are `lengths` long."""
        if self._link is None:
            return tensor
        shapes = [_with_length(tensor, dim, length) for length in lengths]
        return torch.cat(self.all_to_all_v([tensor] * self.group.size, shapes), dim)

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sum over all places, bitwise equal on all."""
        if self._link is None:
            return tensor
        total = tensor.clone(memory_format=torch.contiguous_format)
        self._count(reduced_bytes(tensor.nbytes, self.group.size))
        self._link.all_reduce(total)
        return total

    def reduce_scatter(
        self, tensor: torch.Tensor, dim: int, lengths: Sequence[int]
    ) -> torch.Tensor:
        """Return the own part of the sum over all places, cut along `dim` into `lengths`."""
        if self._link is None:
            return tensor
        parts = tensor.split(list(lengths), dim)
        shape = parts[self.group.own].shape
        first, *others = self.all_to_all_v(parts, [shape] * self.group.size)
        total = first.clone()
        for each in others:
            total += each
        return total

    def _count(self, sent_bytes: int) -> None:
        self.traffic += Traffic(calls=1, sent_bytes=sent_bytes)


def reduced_bytes(num_bytes: int, ranks: int) -> int:
    """Return what a rank sends for an all-reduce: twice all parts but its own, rounded down."""
    return 2 * num_bytes * (ranks - 1) // ranks


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the numbers of a tensor as bytes in one row."""
    return tensor.contiguous().view(-1).view(torch.uint8)


def _with_length(tensor: torch.Tensor, dim: int, length: int) -> list[int]:
    shape = list(tensor.shape)
    shape[dim] = length
    return shape
