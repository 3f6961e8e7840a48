"""What a name given by flag or keyword stands for, and its value as plain data.

Each name has one level: it speaks about the start (`StartFields`), about how the start is spread
(`LaunchOptions`), about the whole pipeline (the root of a deploy file), or about stages.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

from stagemesh.config.check import hints, wrong_type
from stagemesh.config.document import Source, read_mapping
from stagemesh.config.fields import StageField
from stagemesh.config.flag_rules import NO_FLAG, StartFields
from stagemesh.config.forms import Form, form_of, read_object, read_words, takes_text
from stagemesh.config.inputs import GivenField
from stagemesh.config.launch import LaunchOptions
from stagemesh.config.place import Nowhere, Place, Run
from stagemesh.config.schema import DeployFile, StageEntry
from stagemesh.config.scope import Scope
from stagemesh.config.tree import quoted
from stagemesh.spec.diagnostic import Diagnostic, Note, did_you_mean
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.unset import UNSET

_VALUES: Final = {"parallel_config": "DiffusionParallelConfig"}
"""Arguments of `Omni` that are a value of their own, each with its type."""
_ARGUMENTS: Final = frozenset({"strategy_config", "deploy_config", "stage_overrides", "devices"})
"""Further arguments of `Omni`."""
_OF_ONE_STAGE: Final = re.compile("stage_([0-9]+)_([a-z0-9_]+)")


class Level(Enum):
    """What a given field speaks about."""

    START = "start"
    """All stages, and nothing that a file could say."""
    LAUNCH = "launch"
    """Processes and hosts."""
    PIPELINE = "pipeline"
    """The whole pipeline, as the root of a deploy file does."""
    STAGE = "stage"
    """Every stage that can use it, or the one that the pipeline says."""


@functools.cache
def pipeline_fields() -> Mapping[str, Any]:
    """Annotations of the fields of a deploy file's root that a flag may give."""
    return {
        name: annotation
        for name, annotation in hints(DeployFile).items()
        if name not in NO_FLAG and form_of(annotation) is not None
    }


def takes_flag(field: StageField) -> bool:
    """Whether a field can be said for all stages; what belongs to one stage cannot."""
    return field.declared_by is not StageEntry


def level_of(name: str, scope: Scope) -> Level | None:
    """Return the level of a name; `None` for a name that nothing here has."""
    if name in hints(StartFields):
        return Level.START
    if name in hints(LaunchOptions):
        return Level.LAUNCH
    if name in pipeline_fields():
        return Level.PIPELINE
    known = scope.fields.get(name)
    is_stages = name in scope.stages.aliases or (known is not None and takes_flag(known))
    return Level.STAGE if is_stages else None


def sorted_given(
    given: Iterable[GivenField], scope: Scope, run: Run
) -> Mapping[Level, list[GivenField]]:
    """Sort fields by level; unknown names and second values of one name are told and dropped."""
    levels: dict[Level, list[GivenField]] = {level: [] for level in Level}
    first: dict[str, GivenField] = {}
    for field in given:
        level = level_of(field.name, scope)
        before = first.setdefault(field.name, field)
        if level is None:
            _tell_unknown(field, scope, run)
        elif before is field:
            levels[level].append(field)
        elif before.value != field.value:
            run.findings.append(
                Diagnostic(
                    code="CF061",
                    message=f"`{field.name}` is given twice, with different values",
                    origin=origin_of(field),
                    notes=(Note(message="first given here", origin=origin_of(before)),),
                    help="leave one of them out",
                )
            )
    return levels


def _tell_unknown(field: GivenField, scope: Scope, run: Run) -> None:
    """Say what was meant: a field of one stage, one that no start here has, or a near name."""
    if field.name in _VALUES:
        wrong_type(field.value, place_of(field), run, f"a `{_VALUES[field.name]}`")
        return
    one = _OF_ONE_STAGE.fullmatch(field.name)
    known = scope.fields.get(field.name)
    message = f"unknown field {quoted(field.name)}"
    if one is not None or (known is not None and not takes_flag(known)):
        stage, name = one.groups() if one is not None else ("0", field.name)
        message = f"{quoted(field.name)} is said of one stage, not of all"
        help_text = f'write `stage_overrides={{"{stage}": {{"{name}": ...}}}}`'
    else:
        names = {
            *hints(StartFields),
            *hints(LaunchOptions),
            *pipeline_fields(),
            *scope.stages.aliases,
        }
        names |= {name for name, each in scope.fields.items() if takes_flag(each)}
        names |= set() if field.is_typed else _ARGUMENTS
        help_text = did_you_mean(field.name, names)
    run.tell("CF065", message, origin_of(field), help_text)


def origin_of(field: GivenField) -> Origin:
    """Return where a field was given."""
    return Origin(layer=Layer.GLOBAL, source=field.source)


def place_of(field: GivenField) -> Place:
    """Return the place of a field, called by its name."""
    located = Nowhere(source=field.source, layer=Layer.GLOBAL)
    return Place(located=located).child(field.name)


def plain_value(field: GivenField, annotation: Any, run: Run) -> object:  # noqa: ANN401
    """Return the value as plain data; `UNSET` where it is none, which is told."""
    form = form_of(annotation)
    if field.is_typed and isinstance(field.value, tuple):
        found = read_words(field.value, form, field.source, run)
        if isinstance(found, tuple) and len(found) == 1 and takes_text(annotation):
            return found[0]
        return found
    if form is Form.OBJECT and isinstance(field.value, str):
        return read_object(field.value, field.source, run)
    where = Source(name=field.source, layer=Layer.GLOBAL)
    document = read_mapping({field.name: field.value}, where, run.findings)
    return UNSET if document is None else document.value[field.name]
