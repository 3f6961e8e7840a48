"""Reads everything that was said for this one start: of single stages, of all, of the start itself.

Nothing here depends on the order in which things were typed: what is said of a stage wins over what
is said of all, and two different values for one thing in one layer are an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from stagemesh.config.check import checker, hints
from stagemesh.config.document import Document
from stagemesh.config.given import (
    Level,
    origin_of,
    pipeline_fields,
    place_of,
    plain_value,
    sorted_given,
)
from stagemesh.config.global_fields import read_global_fields
from stagemesh.config.inputs import GivenField, PlanInputs
from stagemesh.config.launch import NO_STAGE, LaunchOptions
from stagemesh.config.overrides import agreeing, find_stage, read_overrides, read_set
from stagemesh.config.patch import Patch, of_stages, patches_of
from stagemesh.config.place import Run
from stagemesh.config.scope import Scope
from stagemesh.config.settings import Sourced
from stagemesh.config.stages import Stages
from stagemesh.config.start_fields import read_policy, read_sampling
from stagemesh.spec.frozen import frozen
from stagemesh.spec.unset import UNSET

_STAGE: Final = "stage_id"


@frozen
class CommandLine:
    """What was said for this one start."""

    patches: tuple[Patch, ...]
    """Values of stages and of the pipeline."""
    launch: Mapping[str, Sourced[object]]
    """Launch options by name; `UNSET` is one that was given and refused."""


def read_command_line(
    inputs: PlanInputs,
    overrides: Document | None,
    scope: Scope,
    files: Sequence[Patch],
    run: Run,
) -> CommandLine:
    """Read it all over what the `files` say; what is wrong goes to `run`."""
    entries = [] if overrides is None else read_overrides(overrides, scope, run)
    for text in inputs.set_values:
        entries += read_set(text, scope, run)
    given = sorted_given(inputs.fields, scope, run)
    start = {field.name: field for field in given[Level.START]}
    launch = _launch(given[Level.LAUNCH], scope.stages, run)
    if (sampling := start.get("default_sampling_params")) is not None:
        entries += read_sampling(sampling, scope, run)
    entries = agreeing(of_stages(entries), scope.stages, run)
    only = launch[_STAGE].value if _STAGE in launch else None
    only = None if only is UNSET else only
    fields = read_global_fields(given[Level.STAGE], scope, [*files, *entries], only, run)
    fields = agreeing(fields, scope.stages, run)
    fields += [patch for each in given[Level.PIPELINE] for patch in _pipeline_field(each, run)]
    if (policy := start.get("omni_lb_policy")) is not None:
        fields += read_policy(policy, scope, [*files, *entries, *fields], run)
    return CommandLine(patches=(*entries, *fields), launch=launch)


def _launch(given: Iterable[GivenField], stages: Stages, run: Run) -> Mapping[str, Sourced[object]]:
    """Check launch options one by one; a stage may be named as well as numbered."""
    launch: dict[str, Sourced[object]] = {}
    for field in given:
        annotation, place = hints(LaunchOptions)[field.name], place_of(field)
        value = plain_value(field, annotation, run)
        built = None if value is None else checker(annotation)(value, place, run)
        if built is not None and field.name == _STAGE and built != NO_STAGE:
            key = built if isinstance(built, str) else str(built)
            stage = None if built is UNSET else find_stage(key, place, stages, run)
            built = UNSET if stage is None else stage.stage_id
        if built is not None:
            launch[field.name] = Sourced(value=built, origin=origin_of(field))
    return launch


def _pipeline_field(field: GivenField, run: Run) -> Iterator[Patch]:
    """Read a field of the whole pipeline, as the root of a deploy file would give it."""
    annotation, place = pipeline_fields()[field.name], place_of(field)
    value = plain_value(field, annotation, run)
    refused = value is not None and checker(annotation)(value, place, run) is UNSET
    given = UNSET if refused else value
    yield from patches_of(None, (field.name,), given, place, annotation)
