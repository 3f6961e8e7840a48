"""Reads entries of stages, which deploy files and overrides write alike, into patches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from stagemesh.config.aliases import under_own_names, written_as
from stagemesh.config.axis_settings import FORMS
from stagemesh.config.check import checker, key_meant, unknown_key, wrong_type
from stagemesh.config.extras import EXTRAS, read_extras
from stagemesh.config.fields import StageField
from stagemesh.config.patch import UNKNOWN_STAGE, Patch, of_stages, patches_of
from stagemesh.config.place import Place, Run
from stagemesh.config.refusals import tell_no_stage_field
from stagemesh.config.schema import STAGE_KEY
from stagemesh.config.stages import Stages
from stagemesh.config.tree import quoted
from stagemesh.spec.axis import ENABLED, SIZE, Axis, DeployField
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.unset import UNSET

_AS_IT_IS: Final[Mapping[str, str]] = {}


def read_stages(
    given: object, place: Place, stages: Stages, fields: Mapping[str, StageField], run: Run
) -> Iterator[Patch]:
    """Read a list of entries, each of another stage."""
    if not isinstance(given, tuple):
        wrong_type(given, place, run, "a list of stages")
        return
    seen: dict[int, Place] = {}
    for index, entry in enumerate(given):
        here = place.child(index)
        if not isinstance(entry, Mapping):
            wrong_type(entry, here, run, f"a mapping with `{STAGE_KEY}`")
            continue
        known = [STAGE_KEY, *fields]
        misspelt = None if STAGE_KEY in entry else key_meant(STAGE_KEY, entry, known)
        if misspelt is None:
            stage_id = _stage_id(entry, here, stages, run)
        else:
            unknown_key(misspelt, here, run, known)
            stage_id = None
        label, stage = here.label, None
        if stage_id is not None:
            if stage_id in seen:
                _tell_twice(stage_id, here, seen[stage_id], run)
            else:
                seen[stage_id] = here
            stage = stages.numbered(stage_id)
            label = stage.model_stage if stage is not None and stages.pipeline else label
        read = (STAGE_KEY, misspelt)
        written = {key: value for key, value in entry.items() if key not in read}
        named = Place(located=here.located, path=here.path, label=label)
        settings = under_own_names(written, named, stage, stages.aliases, run)
        names = written_as(written, stage, stages.aliases)
        owner = UNKNOWN_STAGE if stage_id is None else stage_id
        yield from of_stages(read_stage(settings, named, owner, fields, run, names))


def _stage_id(
    entry: Mapping[str | int, object], place: Place, stages: Stages, run: Run
) -> int | None:
    if STAGE_KEY not in entry:
        run.tell("CF011", f"{place.child(STAGE_KEY).name} is missing", place.origin, stages.listed)
        return None
    here = place.child(STAGE_KEY)
    stage_id = checker(int)(entry[STAGE_KEY], here, run)
    if not isinstance(stage_id, int):
        return None
    if stages.numbered(stage_id) is None:
        message = f"no stage {quoted(stage_id)} in this pipeline"
        run.tell("CF020", message, here.origin, stages.listed)
        return None
    return stage_id


def _tell_twice(stage_id: int, place: Place, first: Place, run: Run) -> None:
    run.findings.append(
        Diagnostic(
            code="CF021",
            message=f"stage `{stage_id}` is given twice",
            origin=place.child(STAGE_KEY).origin,
            notes=(Note(message="first given here", origin=first.child(STAGE_KEY).origin),),
            help="put the fields of one stage into one entry",
        )
    )


def read_stage(
    entry: Mapping[str | int, object],
    place: Place,
    stage_id: int,
    fields: Mapping[str, StageField],
    run: Run,
    written: Mapping[str, str] = _AS_IT_IS,
) -> Iterator[Patch]:
    """Read the fields of one stage; what is wrong goes to `run`.

    `written` has the name of a field at its place, where it is another one.
    """
    patches: list[Patch] = []
    for name, value in entry.items():
        here = place.child(written.get(str(name), name))
        if value is UNSET and name in fields:
            continue
        if name == EXTRAS:
            patches += read_extras(stage_id, value, here, fields, run)
        elif name in fields:
            patches += _checked(stage_id, fields[str(name)], value, here, run)
        else:
            tell_no_stage_field(name, value, place, run, fields)
    # what is cleared goes first: a field beside it may set a part anew
    yield from sorted(patches, key=lambda patch: patch.value is not None)


def _checked(
    stage_id: int, field: StageField, value: object, place: Place, run: Run
) -> Iterator[Patch]:
    if value is not None and field.check(value, place, run) is UNSET:
        yield Patch(stage_id=stage_id, path=(field.name,), value=UNSET, origin=place.origin)
    else:
        yield from field_patches(stage_id, field, value, place)


def field_patches(stage_id: int, field: StageField, value: object, place: Place) -> Iterator[Patch]:
    """Patches of a field whose value was checked; `None` clears what lower layers say."""
    if field.axis is None or field.sets is None:
        yield from patches_of(stage_id, (field.name,), value, place)
    else:
        yield from _axis_field(stage_id, field.axis, field.sets, value, place)


def _axis_field(
    stage_id: int, axis: Axis, sets: DeployField, value: object, place: Place
) -> Iterator[Patch]:
    """Patches of a field that says something about an axis; `None` takes back what it says."""
    member: tuple[str, ...] = (sets.member,)
    if sets.member not in (ENABLED, SIZE):
        member = ("options", sets.member)
    elif sets.member == SIZE and sets.name != axis.field_for(SIZE):
        member = (FORMS, sets.name)
    if value is None:
        whole = member[0] in (ENABLED, SIZE)
        path = ("axes", axis.name, *(() if whole else member))
        yield Patch(stage_id=stage_id, path=path, value=None, origin=place.origin)
        return
    is_option_of_switched = member[0] == "options" and axis.switch is not None
    on = {} if is_option_of_switched or sets.member == ENABLED else {ENABLED: True}
    yield from axis_patches(stage_id, axis.name, on, place)
    yield Patch(
        stage_id=stage_id, path=("axes", axis.name, *member), value=value, origin=place.origin
    )


def axis_patches(
    stage_id: int, axis: str, members: Mapping[str, object], place: Place
) -> Iterator[Patch]:
    """Patches of one axis whose members all stand at one place."""
    yield Patch(stage_id=stage_id, path=("axes", axis), value={}, origin=place.origin)
    for member, value in members.items():
        path = ("axes", axis, member)
        yield Patch(stage_id=stage_id, path=path, value=value, origin=place.origin)
