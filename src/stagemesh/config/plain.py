"""Values as JSON knows them, so that what is written equals what is read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum

from stagemesh.spec.unset import UNSET


def plain(value: object) -> object:
    """Return `value` with enums by value, sequences as tuples and dataclasses as mappings.

    `UNSET` stays: it marks what was told to be wrong.
    """
    if isinstance(value, Enum) and value is not UNSET:
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
