"""Values as JSON knows them, so that a plan is equal to what is read back from its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum


def plain(value: object) -> object:
    """Return `value` with enums by value, sequences as tuples and dataclasses as mappings."""
    if isinstance(value, Enum):
        return plain(value.value)
    if is_dataclass(value):
        return plain_fields(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return tuple(plain(inner) for inner in value)
    return value


def plain_fields(instance: object) -> dict[str, object]:
    """Return the fields of a dataclass instance by name."""
    assert is_dataclass(instance)
    return {item.name: plain(getattr(instance, item.name)) for item in fields(instance)}
