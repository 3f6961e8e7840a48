"""Which stages of a request are told when it begins, and which when another stage has ended there.

An edge that hands over chunks has to be there before the first one, so both of its stages are told
together. A stage whose inputs all come whole has nothing to do before that: its replica is chosen
when the first of its producers has ended, by what replicas hold then rather than long before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from stagemesh.runtime.core.actions import StageShape


class Waves:
    """The stages of a pipeline by when they are told."""

    def __init__(self, stages: Sequence[StageShape]) -> None:
        """Look at all edges once."""
        self._shapes: Final = {shape.stage: shape for shape in stages}
        fed = {target for shape in stages for target in (*shape.chunks_to, *shape.whole_to)}
        self.first: Final = self._together(stage for stage in self._shapes if stage not in fed)
        """Stages that are told when a request begins."""
        self.later: Final = tuple(stage for stage in self._shapes if stage not in self.first)
        """All others."""
        self._after = {shape.stage: self._together(shape.whole_to) for shape in stages}

    def after(self, stage: int) -> tuple[int, ...]:
        """Stages that are told when a stage has ended, unless they were told before."""
        return self._after[stage]

    def _together(self, stages: Iterable[int]) -> tuple[int, ...]:
        """These, and all that they feed in chunks, by their order in the pipeline."""
        found: set[int] = set()
        looking = list(stages)
        while looking:
            stage = looking.pop()
            if stage not in found:
                found.add(stage)
                looking += self._shapes[stage].chunks_to
        return tuple(stage for stage in self._shapes if stage in found)
