"""The axis `beam`: multiplies the ranks of token-by-token stages."""

from __future__ import annotations

from dataclasses import dataclass

from stagemesh.spec.axis import Axis, Owner, WorldRole
from stagemesh.spec.patterns import Broadcast, TakeRank
from stagemesh.spec.pipeline import ExecutionType


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Further keys of a `beam` entry."""

    colour: str = "white"
    """Shown in the plan."""


AXIS = Axis(
    name="beam",
    summary="an axis of a third party",
    fits=frozenset({ExecutionType.LLM_AR}),
    role=WorldRole.MULTIPLIES_RANKS,
    routing=Broadcast(),
    aggregation=TakeRank(),
    owner=Owner.ENGINE,
    mesh_position=7,
    options=Options,
)
