"""Types of configured values in words: what the annotation of a field lets people write."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Final, Literal, Union

from stagemesh.config.check import Annotation, Pattern
from stagemesh.spec.bounds import Range

_SCALARS: Final[Mapping[Annotation, str]] = {
    str: "text",
    bool: "`true` or `false`",
    int: "whole number",
    float: "number",
    type(None): "null",
    object: "any value",
    Any: "any value",
}
_MAPPINGS: Final = (dict, Mapping)
_COLLECTIONS: Final[Mapping[Annotation, str]] = {
    dict: "mapping",
    Mapping: "mapping",
    tuple: "list",
    list: "list",
    Sequence: "list",
}


def type_text(annotation: Annotation) -> str:
    """Say what values an annotation takes, such as `whole number >= 1 or null`."""
    origin: Annotation = typing.get_origin(annotation)
    args = typing.get_args(annotation)
    if origin is Annotated:
        return type_text(args[0]) + "".join(_constraint(item) for item in args[1:])
    if origin is Literal:
        return _choices(args)
    if origin in (Union, types.UnionType):
        return " or ".join(type_text(member) for member in args)
    if origin in _COLLECTIONS:
        return f"{_COLLECTIONS[origin]} of {type_text(args[-1 if origin in _MAPPINGS else 0])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _choices([member.value for member in annotation])
    return _SCALARS.get(annotation, "mapping")


def _choices(values: Sequence[object]) -> str:
    return " or ".join(f"`{value}`" for value in values)


def without_null(annotation: Annotation) -> Annotation:
    """Take `None` out of a union: it only says that nothing is overridden."""
    origin: Annotation = typing.get_origin(annotation)
    args = typing.get_args(annotation)
    if origin not in (Union, types.UnionType) or type(None) not in args:
        return annotation
    return Union[tuple(arg for arg in args if arg is not type(None))]  # noqa: UP007  it is built


def held_type(annotation: Annotation) -> type | None:
    """Return the dataclass whose fields are the members of a value, looking into collections."""
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return annotation
    origin: Annotation = typing.get_origin(annotation)
    args = typing.get_args(annotation)
    inner = args[1:] if origin in _MAPPINGS else args
    candidates = () if origin is Literal else inner
    return next((held for arg in candidates if (held := held_type(arg)) is not None), None)


def is_by_name(annotation: Annotation) -> bool:
    """Whether a value is a mapping with free names, so that a path names one of them first."""
    origin: Annotation = typing.get_origin(without_null(annotation))
    return origin in _MAPPINGS


def item_type(annotation: Annotation) -> Annotation:
    """Return the type of the members of a mapping with free names."""
    return typing.get_args(without_null(annotation))[-1]


def _constraint(item: object) -> str:
    if isinstance(item, Range):
        return f" {item}"
    return f" like `{item.example}`" if isinstance(item, Pattern) else ""
