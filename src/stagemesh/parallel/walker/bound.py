"""One network that a plan is being bound to, and what is known while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import nn

from stagemesh.errors import ActivityError
from stagemesh.parallel.sequence.cuts import balanced
from stagemesh.parallel.walker.activity import Activity
from stagemesh.parallel.walker.groups import Groups
from stagemesh.spec.model_plan import ModelPlan


@dataclass(eq=False, slots=True, kw_only=True)
class Bound:
    """What every binding knows."""

    plan: ModelPlan
    """What is said about the network."""
    network: nn.Module
    """The network."""
    groups: Groups
    """Its ranks."""
    activity: Activity
    """What has to happen, and has."""
    lengths: dict[str, int] = field(default_factory=dict)
    """Tokens of each stream that has been cut in this forward, on all ranks together."""

    def parts(self, stream: str) -> tuple[int, ...]:
        """Tokens of a stream at every place."""
        if stream not in self.lengths:
            raise ActivityError(f"`{stream}` of `{self.plan.name}` is used before it is cut")
        return balanced(self.lengths[stream], self.groups.sp)

    def places(self, streams: Sequence[str]) -> tuple[int, ...]:
        """Tokens of several streams, one behind the other, at every place."""
        each = [self.parts(stream) for stream in streams]
        return tuple(map(sum, zip(*each, strict=True)))
