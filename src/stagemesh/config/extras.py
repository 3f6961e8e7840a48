"""`engine_extras`: options of the engine of a stage, in a mapping of their own.

They are the same fields as those of the entry itself and end as the same settings. Where both say
something, the entry wins and a warning names both places.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Final

from stagemesh.config.check import unknown_key, wrong_type
from stagemesh.config.fields import StageField
from stagemesh.config.patch import Patch, patches_of
from stagemesh.config.place import Place, Run
from stagemesh.config.plain import plain
from stagemesh.config.refusals import tell_refused
from stagemesh.config.schema import StageEntry
from stagemesh.config.settings import Sourced
from stagemesh.config.tree import quoted
from stagemesh.spec.axis import Axis
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity
from stagemesh.spec.origin import Layer
from stagemesh.spec.unset import UNSET

EXTRAS: Final = "engine_extras"
"""The key of the mapping."""


def read_extras(
    stage_id: int, given: object, place: Place, fields: Mapping[str, StageField], run: Run
) -> Iterator[Patch]:
    """Read the mapping of one entry; what is no option of any engine goes to `run`."""
    if given is None:
        yield Patch(stage_id=stage_id, path=(EXTRAS,), value=None, origin=place.origin)
        return
    if not isinstance(given, Mapping):
        wrong_type(given, place, run, "a mapping of options of the engine")
        return
    yield Patch(stage_id=stage_id, path=(EXTRAS,), value={}, origin=place.origin)
    options = {name: field for name, field in fields.items() if _is_option(field)}
    for name, value in given.items():
        here = place.child(name)
        if name in options:
            refused = value is not None and options[str(name)].check(value, here, run) is UNSET
            yield from patches_of(stage_id, (EXTRAS, name), UNSET if refused else value, here)
        elif name in fields:
            message = f"{quoted(name)} is no option of an engine"
            help_text = "write it directly in the entry of the stage"
            run.tell("CF032", message, here.key_origin, help_text)
        elif not tell_refused(str(name), value, here, run):
            unknown_key(name, place, run, options)


def _is_option(field: StageField) -> bool:
    """Whether engines may take it, rather than the planner or an axis."""
    return field.declared_by is not StageEntry and not isinstance(field.declared_by, Axis)


def take_extras(
    extras: Mapping[str, Sourced[object]],
    values: MutableMapping[str, Sourced[object]],
    stage: str,
    run: Run,
) -> None:
    """Add what extras say to the values of a stage, where its entry says nothing.

    A value for every stage of the pipeline gives way: extras are the stage's own.
    """
    for name, extra in extras.items():
        own = values.get(name)
        if own is None:
            values[name] = extra
        elif own.origin.layer <= Layer.PIPELINE_WIDE:
            below = (*extra.superseded, _alone(own), *own.superseded)
            values[name] = dataclasses.replace(extra, superseded=below)
        else:
            below = (*own.superseded, _alone(extra), *extra.superseded)
            values[name] = dataclasses.replace(own, superseded=below)
            if plain(own.value) != plain(extra.value):
                run.findings.append(_replaced(f"{stage}.{EXTRAS}.{name}", extra, own))


def _alone(sourced: Sourced[object]) -> Sourced[object]:
    return Sourced(value=sourced.value, origin=sourced.origin)


def _replaced(label: str, extra: Sourced[object], own: Sourced[object]) -> Diagnostic:
    return Diagnostic(
        code="CF033",
        severity=Severity.WARNING,
        message=f"{quoted(label, 60)} is replaced by the field of the entry",
        origin=extra.origin,
        notes=(Note(message="the field of the entry is set here", origin=own.origin),),
        help="keep one of them",
    )
