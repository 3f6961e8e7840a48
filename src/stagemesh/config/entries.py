"""Reads the fields of one stage, which deploy files and overrides write alike, into patches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stagemesh.config.check import unknown_key
from stagemesh.config.fields import StageField
from stagemesh.config.patch import Patch, patches_of
from stagemesh.config.place import Place, Run
from stagemesh.config.tree import quoted
from stagemesh.spec.axis import ENABLED, SIZE, DeployField
from stagemesh.spec.unset import UNSET

NESTED = ("engine_args", "runtime")
"""Mappings of an older layout, whose members are stage fields now."""


def read_stage(
    entry: Mapping[str | int, object],
    place: Place,
    stage_id: int,
    fields: Mapping[str, StageField],
    run: Run,
) -> Iterator[Patch]:
    """Read the fields of one stage; what is wrong goes to `run`."""
    for name, value in entry.items():
        here = place.child(name)
        if name in NESTED:
            _tell_nested(str(name), value, here, run)
        elif name not in fields:
            unknown_key(name, place, run, fields)
        elif value is not UNSET:
            yield from _field_patches(stage_id, fields[str(name)], value, here, run)


def _field_patches(
    stage_id: int, field: StageField, value: object, place: Place, run: Run
) -> Iterator[Patch]:
    refused = value is not None and field.check(value, place, run) is UNSET
    if refused:
        yield Patch(stage_id=stage_id, path=(field.name,), value=UNSET, origin=place.origin)
    elif field.axis is None or field.sets is None:
        yield from patches_of(stage_id, (field.name,), value, place)
    else:
        yield from _axis_field(stage_id, field.axis.name, field.sets, value, place)


def _axis_field(
    stage_id: int, axis: str, sets: DeployField, value: object, place: Place
) -> Iterator[Patch]:
    """Patches of a field that says something about an axis; `None` takes back what it says."""
    is_option = sets.member not in (ENABLED, SIZE)
    if value is None:
        path = ("axes", axis, "options", sets.member) if is_option else ("axes", axis)
        yield Patch(stage_id=stage_id, path=path, value=None, origin=place.origin)
        return
    options = {**sets.implies, **({sets.member: value} if is_option else {})}
    size = {SIZE: value} if sets.member == SIZE else {}
    enabled = value if sets.member == ENABLED else True
    yield from axis_patches(stage_id, axis, {ENABLED: enabled, **size}, place)
    for name, option in options.items():
        path = ("axes", axis, "options", name)
        yield Patch(stage_id=stage_id, path=path, value=option, origin=place.origin)


def axis_patches(
    stage_id: int, axis: str, members: Mapping[str, object], place: Place
) -> Iterator[Patch]:
    """Patches of one axis whose members all stand at one place."""
    yield Patch(stage_id=stage_id, path=("axes", axis), value={}, origin=place.origin)
    for member, value in members.items():
        path = ("axes", axis, member)
        yield Patch(stage_id=stage_id, path=path, value=value, origin=place.origin)


def _tell_nested(name: str, value: object, place: Place, run: Run) -> None:
    help_text = "write stage fields directly in the entry of the stage"
    if isinstance(value, Mapping) and value:
        help_text += ": " + ", ".join(flat_field(*item) for item in value.items())
    run.tell("CF023", f"{quoted(name)} is not nested here", place.key_origin, help_text)


def flat_field(name: object, value: object) -> str:
    """Show a field as it would be written in an entry."""
    shown = "..." if isinstance(value, Mapping | tuple) else quoted(value)[1:-1]
    return f"`{name}: {shown}`"
