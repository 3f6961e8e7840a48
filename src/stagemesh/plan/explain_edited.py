"""What holds although nobody is recorded to have given it, and who says so.

In a plan that was made now that is the model. A saved plan may be edited as well, as long as
planning it again gives the same: what was written into it has no other place than its own file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from stagemesh.config.edges import EDGES
from stagemesh.plan.declared import SAMPLING
from stagemesh.plan.edge_values import CONNECTOR, LIMITS
from stagemesh.plan.make import Made
from stagemesh.plan.params import constrained
from stagemesh.plan.pins import DEVICES
from stagemesh.plan.render import devices_text
from stagemesh.plan.subject import Record, Subject
from stagemesh.plan.values import StagePlan, ValuePlan
from stagemesh.plan.wide_values import LAUNCH
from stagemesh.spec.unset import UNSET

_MODEL: Final = ("pipeline", "what the model does not let go of")
SAVED: Final = "saved"
"""Stands for the layer of what was written into a saved plan."""
_OF_PIPELINE: Final = frozenset({"pipeline", "async_chunk"})
"""Values of the whole pipeline that may be others than those that were given."""


def held_at(subject: Subject, record: Record, said: Sequence[ValuePlan], made: Made) -> object:
    """Return what holds at a path; `UNSET` where there is only what was given."""
    path, stage = subject.path, record.stages.get(subject.stage or "")
    held = record.held(subject.stage)
    if stage is None or path in held:
        return held.get(path, UNSET)
    if path == DEVICES:
        return devices_text(stage) if made.saved and _has_moved(stage, said) else UNSET
    given = {**stage.stage_args, **{f"env.{name}": value for name, value in stage.env.items()}}
    return given.get(path, UNSET)


def is_unrecorded(subject: Subject, held: object, default: object, record: Record) -> bool:
    """Whether an argument is no default, and yet nothing says who gave it: only edits do that.

    What planning itself fills in, such as the key of a hash, is recorded nowhere either.
    """
    if held in (UNSET, default) or subject.path in record.given.get(subject.stage, {}):
        return False
    if subject.stage is None:
        return subject.path.startswith(f"{LAUNCH}.")
    return subject.path in record.stages[subject.stage].engine_args


def speaker_of(
    subject: Subject, held: object, said: Sequence[ValuePlan], made: Made
) -> tuple[str, str]:
    """Return layer and place of what holds instead of what was given, or of a default."""
    if made.saved is None or _is_of_model(subject, held, said, made):
        return _MODEL
    return SAVED, made.saved


def as_it_holds(subject: Subject, value: ValuePlan, record: Record, made: Made) -> ValuePlan:
    """Return a value that was given, or above it what was written into a saved plan instead."""
    said = [value, *value.superseded]
    held = held_at(subject, record, said, made)
    layer, place = speaker_of(subject, held, said, made)
    if layer != SAVED or value.clears or held in (UNSET, value.value):
        return value
    below = (replace(value, superseded=()), *value.superseded)
    return ValuePlan(value=held, layer=layer, origin=place, superseded=below)


def _is_of_model(subject: Subject, held: object, said: Sequence[ValuePlan], made: Made) -> bool:
    """Whether a plan that nobody edited has the same."""
    first, _, rest = subject.path.partition(".")
    if subject.stage is None:
        is_of_edge = first == EDGES and rest.rpartition(".")[2] in (CONNECTOR, *LIMITS)
        return first in _OF_PIPELINE or is_of_edge
    pipeline = None if made.loaded is None else made.loaded.pipeline
    stage = None if pipeline is None else pipeline.stage(subject.stage)
    if first != SAMPLING or stage is None:
        return False
    given = {} if not said or said[0].clears else {rest: said[0].value}
    return constrained(given, stage.sampling_constraints).get(rest) == held


def _has_moved(stage: StagePlan, said: Sequence[ValuePlan]) -> bool:
    """Whether a stage lies elsewhere than on the devices that are listed for it."""
    if not said or not isinstance(said[0].value, str):
        return False
    listed = [each.strip() for each in said[0].value.split(",")]
    used = [str(rank.device) for replica in stage.replicas for rank in replica.ranks]
    return used[: len(listed)] != listed
