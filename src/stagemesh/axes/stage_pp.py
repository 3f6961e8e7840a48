"""Stage pipelining: a bound on what is in flight on a stage's outgoing edges. Layers are `pp`."""

from __future__ import annotations

from typing import Literal

from stagemesh.spec.axis import Axis, Owner, WorldRole
from stagemesh.spec.frozen import frozen
from stagemesh.spec.patterns import PipelineMicrobatch, StitchPipeline
from stagemesh.spec.pipeline import ExecutionType


@frozen
class Options:
    """Further keys of a `stage_pp` entry."""

    unit: Literal["requests", "chunks"] = "requests"
    """What `size` counts."""


AXIS = Axis(
    name="stage_pp",
    summary="stage pipelining: a bound on what is in flight between stages",
    fits=frozenset(ExecutionType),
    role=WorldRole.NO_RANKS,
    routing=PipelineMicrobatch(),
    aggregation=StitchPipeline(),
    owner=Owner.DELEGATED,
    options=Options,
)
