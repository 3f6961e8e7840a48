"""How a field looks on a command line: the form follows from the field's own annotation.

The table of flags is generated with `form_of`, and what was typed is read by the same form, so the
two cannot differ. Text that is no number stays text, and the check of the field says what it must
be; only what no source can say is told here, such as JSON that is none or `010`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Final, Literal, Union

from stagemesh.config.check import Annotation
from stagemesh.config.document import Document, Source, read_json
from stagemesh.config.place import Run
from stagemesh.config.tree import leading_zero, quoted
from stagemesh.config.yaml_core import is_ambiguous
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.unset import UNSET

NULL: Final = "null"
"""The word that takes back what lower layers say, whatever the form."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


class Form(Enum):
    """How the value of a flag is written."""

    SWITCH = "switch"
    """`--x` or `--no-x`."""
    INTEGER = "integer"
    """A whole number."""
    NUMBER = "number"
    """Any number."""
    TEXT = "text"
    """A word; one of the choices where there are some."""
    INTEGERS = "integers"
    """Whole numbers: one word that joins them by commas, several words, or a JSON list."""
    TEXTS = "texts"
    """Texts, given in the same three ways."""
    OBJECT = "object"
    """A JSON object."""


def form_of(annotation: Annotation) -> Form | None:
    """Return the form of a field; `None` for one that no flag can carry."""
    forms = {_form(member) for member in _members(annotation)}
    if len(forms) == 1:
        return forms.pop()
    if forms == {Form.TEXT, Form.TEXTS}:
        return Form.TEXTS
    return Form.INTEGER if forms == {Form.INTEGER, Form.TEXT} else None


def takes_text(annotation: Annotation) -> bool:
    """Whether a field takes one text as it is, also where it takes several."""
    return Form.TEXT in map(_form, _members(annotation))


def choices_of(annotation: Annotation) -> tuple[str, ...]:
    """Return the words that a field takes, when there are only so many."""
    words: list[str] = []
    for member in _members(annotation):
        kind: Annotation = typing.get_origin(member)
        if kind is Literal:
            words += map(str, typing.get_args(member))
        elif isinstance(member, type) and issubclass(member, Enum):
            words += (str(each.value) for each in member)
        else:
            return ()
    return tuple(words)


def _members(annotation: Annotation) -> tuple[Annotation, ...]:
    """The members of a union but for `None`, without what `Annotated` adds to them."""
    origin: Annotation = typing.get_origin(annotation)
    if origin is Annotated:
        return _members(typing.get_args(annotation)[0])
    if origin not in (Union, types.UnionType):
        return (annotation,)
    return tuple(
        inner
        for member in typing.get_args(annotation)
        if member is not type(None)
        for inner in _members(member)
    )


def _form(annotation: Annotation) -> Form | None:
    origin: Annotation = typing.get_origin(annotation)
    args = typing.get_args(annotation)
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if origin is Literal or (isinstance(annotation, type) and issubclass(annotation, Enum)):
        return Form.TEXT
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return Form.OBJECT
    if origin in (dict, Mapping):
        return Form.OBJECT if args[1] in (object, str) else None
    if origin in (tuple, list):
        return _LISTS.get(form_of(args[0]))
    return None


_AS_A_LIST: Final = """write `'["one", "two"]'`, or `one,two`"""
_LISTS: Final[Mapping[Form | None, Form]] = {
    Form.INTEGER: Form.INTEGERS,
    Form.TEXT: Form.TEXTS,
}
_SCALARS: Final[Mapping[Annotation, Form]] = {
    bool: Form.SWITCH,
    int: Form.INTEGER,
    float: Form.NUMBER,
    str: Form.TEXT,
}


def read_words(words: tuple[str, ...], form: Form | None, source: str, run: Run) -> object:
    """Turn what was typed behind a flag into a plain value; `UNSET` for what is wrong itself."""
    if words == (NULL,):
        return None
    match form:
        case Form.OBJECT:
            return read_object(words[0], source, run)
        case Form.INTEGERS | Form.TEXTS:
            return _listed(words, _integer if form is Form.INTEGERS else _text, source, run)
        case Form.INTEGER:
            return _integer(words[0], source, run)
        case Form.NUMBER:
            return _number(words[0], source, run)
    return words[0]


def _listed(
    words: tuple[str, ...], read: Callable[[str, str, Run], object], source: str, run: Run
) -> object:
    """Read several words, one with commas, or a JSON list, in which a word may have commas."""
    if len(words) == 1 and words[0].lstrip().startswith("["):
        return _read_list(words[0], source, run)
    items = words if len(words) > 1 else words[0].split(",")
    built = tuple(read(item, source, run) for item in items)
    return UNSET if UNSET in built else built


def _read_list(text: str, source: str, run: Run) -> object:
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{quoted(source)} takes a JSON list, or words joined by commas: {error}"
        return run.tell("CF002", message, Origin(layer=Layer.GLOBAL, source=source), _AS_A_LIST)
    return tuple(items)


def read_object(text: str, source: str, run: Run) -> object:
    """Read the JSON object that `source` was given; what is wrong is told and leaves `UNSET`."""
    document = open_object(text, source, run)
    return UNSET if document is None else document.value


def open_object(text: str, source: str, run: Run) -> Document | None:
    """Read the JSON object that `source` was given, with the places of its values."""
    where = Source(name=source, layer=Layer.GLOBAL, expected="a JSON object")
    return read_json(text, where, run.findings)


def _text(text: str, _source: str, _run: Run) -> object:
    return text


def _integer(text: str, source: str, run: Run) -> object:
    if not _INTEGER.fullmatch(text):
        return text
    if is_ambiguous(text):  # files refuse it, and one text must not mean two things
        message, remedy = leading_zero(text, may_be_text=False)
        return run.tell("CF005", message, Origin(layer=Layer.GLOBAL, source=source), remedy)
    return int(text)


def _number(text: str, source: str, run: Run) -> object:
    if _INTEGER.fullmatch(text):
        return _integer(text, source, run)
    number = float(text) if _NUMBER.fullmatch(text) else math.inf
    return number if math.isfinite(number) else text
