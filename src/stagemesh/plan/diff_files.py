"""How two deploy or strategy files differ in what they say, whatever the order and the spacing.

Entries of stages are matched by `stage_id`, entries of axes by `axis`. What follows from the files
is not known here: for that, both are planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stagemesh.config.document import Document
from stagemesh.config.schema import STAGE_KEY
from stagemesh.plan.diff import Difference, compared, leaves

_KEYS: Final = (STAGE_KEY, "axis", "from")
"""Members that name an entry of a list."""


def file_differences(before: Document, after: Document) -> tuple[Difference, ...]:
    """Return every value that two files give differently, by the part of the file it is in."""
    old, new = _parts(before), _parts(after)
    return tuple(
        found
        for where in dict.fromkeys((*old, *new))
        for found in compared(where, old.get(where, {}), new.get(where, {}))
    )


def _parts(document: Document) -> dict[str, dict[str, object]]:
    """Cut a file into its entries (stages, connectors) and the rest, each into values by path."""
    parts: dict[str, dict[str, object]] = {}
    for name, value in document.value.items():
        inner = _keyed(value)
        if isinstance(inner, Mapping) and all(isinstance(each, Mapping) for each in inner.values()):
            parts |= {f"{name}.{key}": dict(leaves("", each)) for key, each in inner.items()}
        else:
            parts.setdefault("file", {}).update(leaves("", {str(name): inner}))
    return parts


def _keyed(value: object) -> object:
    """Turn lists of entries that name themselves into mappings by that name."""
    if isinstance(value, Mapping):
        return {str(name): _keyed(inner) for name, inner in value.items()}
    if isinstance(value, tuple) and value and all(isinstance(each, Mapping) for each in value):
        return dict(_entry(each, number) for number, each in enumerate(value))
    return value


def _entry(entry: Mapping[str | int, object], number: int) -> tuple[str, object]:
    """Name of an entry, and its other members."""
    key = next((key for key in _KEYS if key in entry), None)
    name = str(number) if key is None else str(entry[key])
    return name, _keyed({each: value for each, value in entry.items() if each != key})
