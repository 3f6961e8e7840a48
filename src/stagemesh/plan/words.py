"""How things are said to people: numbers of things, values, who does what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stagemesh.spec.axis import Owner

OWNERS: Final[Mapping[Owner, str]] = {Owner.ENGINE: "the engine", Owner.DELEGATED: "the runtime"}
"""Who carries the routing of an axis out."""
_CONSTANTS: Final = {"None": "null", "True": "true", "False": "false"}


def plural(number: int, word: str) -> str:
    """Say `1 error`, `2 errors`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def taken_text(kind: str, default: object) -> str:
    """Say what values a field takes and what holds when it is not given."""
    if default is None:
        return f"{kind.removesuffix(' or null')}; not set by default"
    return f"{kind}; default {value_text(default)}"


def value_text(value: object) -> str:
    """Write a value as YAML would, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {value_text(inner)}" for key, inner in value.items()) + "}"
    if value == ():
        return "[]"
    if isinstance(value, tuple):
        return ",".join(value_text(inner) for inner in value)
    return _CONSTANTS.get(str(value), str(value))


def size_text(amount: int) -> str:
    """Say a number of bytes for people."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = min((max(amount, 1).bit_length() - 1) // 10, len(units) - 1)
    return f"{amount / 1024**power:.4g} {units[power]}"
