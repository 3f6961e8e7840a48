"""The groups of ranks that a network is bound to, and how a whole is put together from parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from stagemesh.parallel.mesh.communicator import Communicator, Traffic
from stagemesh.parallel.sequence.attention import SequenceGroups
from stagemesh.spec.frozen import frozen


@frozen
class Groups:
    """The groups of one rank; where one is a single rank, nothing is bound for it."""

    tp: Communicator
    """Ranks that cut the width."""
    ulysses: Communicator
    """Ranks that trade tokens for heads."""
    ring: Communicator
    """Ranks that hand keys and values around."""
    packed: bool = True
    """Whether queries, keys and values travel in one operation, instead of three."""

    @property
    def sp(self) -> int:
        """How many ranks share a sequence."""
        return self.ulysses.group.size * self.ring.group.size

    @property
    def place(self) -> int:
        """The own place among them: rings of Ulysses groups, as the mesh has them."""
        return self.ring.group.own * self.ulysses.group.size + self.ulysses.group.own

    @property
    def several(self) -> tuple[Communicator, ...]:
        """Those of more than one rank."""
        return tuple(each for each in (self.tp, self.ulysses, self.ring) if each.group.size > 1)

    def sequence(self, lengths: Sequence[int]) -> SequenceGroups:
        """Who shares a sequence of which every place has so many tokens."""
        return SequenceGroups(
            ulysses=self.ulysses, ring=self.ring, lengths=tuple(lengths), packed=self.packed
        )

    def gather(self, tensor: torch.Tensor, dim: int, lengths: Sequence[int]) -> torch.Tensor:
        """Join what all places hold along `dim`, in the order of places."""
        over = self.sequence(lengths)
        chunk = self.ulysses.all_gather_v(tensor, dim, over.traded)
        return self.ring.all_gather_v(chunk, dim, over.chunks)

    def gather_traffic(
        self, tensor: torch.Tensor, dim: int, lengths: Sequence[int]
    ) -> Iterator[tuple[Communicator, Traffic]]:
        """Return what that costs this rank, by group."""
        each = tensor.nbytes // max(tensor.shape[dim], 1) if tensor.shape[dim] else 0
        chunk = self.sequence(lengths).chunks[self.ring.group.own]
        for over, length in ((self.ulysses, tensor.shape[dim]), (self.ring, chunk)):
            others = over.group.size - 1
            if others:
                yield over, Traffic(calls=1, sent_bytes=each * length * others)
