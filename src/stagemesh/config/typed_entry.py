"""Reads what was typed about one stage: its fields, and short forms that files do not have.

An axis may be written by its name, alone for its size (`tp: 2`) or with its members
(`sp_ulysses: {size: 2, mode: strict}`), and a field that means one stage of the pipeline may stand
at that stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stagemesh.config.aliases import under_own_names, written_as
from stagemesh.config.check import checker, hints, unknown_key, wrong_type
from stagemesh.config.entries import axis_patches, read_stage
from stagemesh.config.patch import UNKNOWN_STAGE, Patch
from stagemesh.config.place import Place, Run
from stagemesh.config.refusals import tell_no_stage_field
from stagemesh.config.schema import Size
from stagemesh.config.scope import Scope
from stagemesh.config.strategy import policy_of
from stagemesh.spec.axis import ENABLED, SIZE, Axis
from stagemesh.spec.pipeline import StagePipelineConfig
from stagemesh.spec.unset import UNSET

_ROUTING = "routing"


def read_typed_entry(
    entry: Mapping[str | int, object],
    place: Place,
    stage: StagePipelineConfig | None,
    scope: Scope,
    run: Run,
) -> Iterator[Patch]:
    """Read the fields of one stage; what is wrong goes to `run`."""
    stage_id = UNKNOWN_STAGE if stage is None or scope.stages.pipeline is None else stage.stage_id
    fields: dict[str | int, object] = {}
    for name, value in under_own_names(entry, place, stage, scope.stages.aliases, run).items():
        axis = None if name in scope.fields else scope.catalog.axes.get(str(name))
        if axis is None and name not in scope.fields:
            tell_no_stage_field(name, value, place, run, scope.fields, scope.catalog.axes)
        elif axis is None:
            fields[name] = value
        elif value is not UNSET:
            yield from _axis(axis, value, place.child(name), stage_id, run)
    names = written_as(entry, stage, scope.stages.aliases)
    yield from read_stage(fields, place, stage_id, scope.fields, run, names)


def _axis(axis: Axis, value: object, place: Place, stage_id: int, run: Run) -> Iterator[Patch]:
    """Read an axis by its name; `None` takes it back."""
    root = ("axes", axis.name)
    if value is None:
        yield Patch(stage_id=stage_id, path=root, value=None, origin=place.origin)
        return
    yield from axis_patches(stage_id, axis.name, {ENABLED: True}, place)
    members = value if isinstance(value, Mapping) else {SIZE: value}
    for name, given in members.items():
        here = place.child(name) if members is value else place
        path, built = _member(axis, str(name), given, here, run)
        if path:
            yield Patch(stage_id=stage_id, path=(*root, *path), value=built, origin=here.origin)
        else:
            allowed = {SIZE, *hints(axis.options), *([_ROUTING] if axis.policies else [])}
            unknown_key(name, place, run, allowed)


def _member(
    axis: Axis, name: str, given: object, place: Place, run: Run
) -> tuple[tuple[str, ...], object]:
    """Return the path of a member inside its axis, empty for none, and its typed value."""
    if name == SIZE:
        return (SIZE,), None if given is None else checker(Size)(given, place, run)
    if name == _ROUTING and axis.policies:
        if isinstance(given, str):
            return (_ROUTING,), policy_of(given, axis, place, run)
        return (_ROUTING,), None if given is None else wrong_type(given, place, run, "text")
    if name in hints(axis.options):
        annotation = hints(axis.options)[name]
        built = None if given is None else checker(annotation)(given, place, run)
        return ("options", name), built
    return (), UNSET
