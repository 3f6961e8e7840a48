"""What one stage needs of the devices."""

from __future__ import annotations

from typing import TypeAlias

from stagemesh.config.settings import Sourced
from stagemesh.plan.words import size_text
from stagemesh.spec.diagnostic import Note, counted
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Origin

DeviceIds: TypeAlias = tuple[int, ...]


@frozen
class Wish:
    """What one stage needs."""

    stage_id: int
    """Number of the stage."""
    stage: str
    """Name of the stage."""
    world: int
    """Ranks of one replica."""
    num_replicas: int
    """Replicas."""
    listed: Sourced[str] | None
    """The devices that it lists, such as `0,1`."""
    repeats: bool = True
    """Whether a list for one replica stands for the others too, each on the devices behind it."""
    rank_bytes: int | None
    """Memory of one rank, when it is known."""
    share: float | None = None
    """Share of a device that one rank may use, when it has one."""
    share_origin: Origin | None = None
    """Where that share was given, if anybody did."""
    amount_origin: Origin | None = None
    """Where it was said how much else one rank keeps, if anybody did."""
    placed: tuple[DeviceIds, ...] | None = None
    """Where its replicas lie already, for a plan that was read back."""
    notes: tuple[Note, ...] = ()
    """Where the sizes were set that make up ranks and replicas."""
    guests: tuple[Wish, ...] = ()
    """What further stages in the same processes need there."""

    def need(self, memory: int | None) -> int:
        """Bytes to keep free for one rank on a device of `memory` bytes, all of its share."""
        return self._own(memory) + sum(guest.need(memory) for guest in self.guests)

    @property
    def shares(self) -> float:
        """Shares of a device that one rank and its guests have been given."""
        return (self.share or 0.0) + sum(guest.shares for guest in self.guests)

    def follows_share(self, memory: int | None) -> bool:
        """Whether its share is what decides how much that is."""
        return self.share is not None and self._reserved(memory) == self._own(memory)

    def origin(self, memory: int | None) -> Origin | None:
        """Where it was said what one rank needs on such a device; `None` where nobody did."""
        return self.share_origin if self.follows_share(memory) else self.amount_origin

    def need_text(self, memory: int | None) -> str:
        """Say it in bytes, or in parts of a device where those are not known."""
        need = self.need(memory)
        if need or self.share is None:
            return size_text(need)
        return f"`{self.share:g}` of the memory"

    def _own(self, memory: int | None) -> int:
        return max(self.rank_bytes or 0, self._reserved(memory))

    def _reserved(self, memory: int | None) -> int:
        return 0 if self.share is None or memory is None else int(self.share * memory)

    @property
    def shape(self) -> str:
        """Its ranks and replicas in words."""
        ranks = counted(self.world, "rank")
        if self.num_replicas == 1:
            return ranks
        return f"`{self.num_replicas}` replicas of {ranks}"
