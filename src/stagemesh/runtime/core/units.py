"""Replicas that share a process: they take requests together, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from stagemesh.runtime.core.actions import StageShape


class Units:
    """Which stages share processes, and which of their replicas are there."""

    def __init__(self, stages: Iterable[StageShape]) -> None:
        """Nobody is there; stages with the same `unit` share processes."""
        stages = tuple(stages)
        self._mates: Final[Mapping[int, tuple[int, ...]]] = {
            shape.stage: tuple(
                other.stage
                for other in stages
                if other is shape or (shape.unit is not None and other.unit == shape.unit)
            )
            for shape in stages
        }
        self._here: set[tuple[int, int]] = set()

    def mates(self, stage: int) -> tuple[int, ...]:
        """The stages in the processes of a stage, itself included."""
        return self._mates[stage]

    def joined(self, stage: int, replica: int) -> tuple[int, ...]:
        """A replica takes requests; return the stages whose replica may be given some now."""
        self._here.add((stage, replica))
        mates = self._mates[stage]
        return mates if all((mate, replica) in self._here for mate in mates) else ()

    def gone(self, stage: int, replica: int) -> tuple[int, ...]:
        """It takes no more; return the stages whose replica is to be given none."""
        self._here.discard((stage, replica))
        return self._mates[stage]

    def bound(self, stage: int, route: Mapping[int, int]) -> int | None:
        """The replica that a request has to go to, since it goes to another in that process."""
        others = (mate for mate in self._mates[stage] if mate != stage and mate in route)
        return next((route[mate] for mate in others), None)
