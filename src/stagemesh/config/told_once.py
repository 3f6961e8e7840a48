"""Findings that are one mistake made several times over, such as names in place of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from stagemesh.spec.diagnostic import Diagnostic, Note

TOLD_ONCE: Final = "told once"
"""Goes into `Annotated`: what is wrong everywhere in the value with one remedy is one finding."""


def told_once(found: Iterable[Diagnostic]) -> Sequence[Diagnostic]:
    """Join findings of one code and one remedy: the first stays, the others become its notes."""
    joined: dict[object, Diagnostic] = {}
    for number, each in enumerate(found):
        key = number if each.help is None else (each.code, each.help)
        first = joined.setdefault(key, each)
        if first is not each:
            note = Note(message=each.message, origin=each.origin)
            joined[key] = replace(first, notes=(*first.notes, note))
    return tuple(joined.values())
