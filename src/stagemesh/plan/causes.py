"""One finding for each cause: what one value makes wrong in several places is told once.

A flag for all stages can be wrong for each of them, and lists of devices of several stages can be
too short for one size. The first finding stays; the others become notes of it, with their places.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.origin import Layer, Origin

_OF_ALL: Final = frozenset({Layer.GLOBAL, Layer.PIPELINE_WIDE})
"""Layers whose values are those of several stages."""


def one_for_each_cause(found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Join findings of one code that one value causes."""
    groups: dict[Hashable, list[Diagnostic]] = {}
    for number, each in enumerate(found):
        cause = _cause(each)
        key = number if cause is None else (each.code, each.severity, cause)
        groups.setdefault(key, []).append(each)
    return tuple(_joined(group) for group in groups.values())


def without_advice_on_errors(found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Leave out warnings about what a value does where there is an error in that very value."""
    told = tuple(found)
    wrong = [each.origin for each in told if each.is_error and each.origin is not None]
    return tuple(
        each
        for each in told
        if each.is_error
        or not any(_is_inside(place, note.origin) for note in each.notes for place in wrong)
    )


def _is_inside(place: Origin, outer: Origin | None) -> bool:
    """Whether a place is that of a value or of a member of it; a flag is all of its value."""
    if outer is None or outer.source != place.source:
        return False
    below = place.path.removeprefix(outer.path) if place.path.startswith(outer.path) else "?"
    return below[:1] in ("", ".", "[") if outer.path else outer.line is None


def _cause(found: Diagnostic) -> Origin | None:
    """The value for all stages that it points to, if it points to one."""
    places = (found.origin, *(note.origin for note in found.notes))
    return next((place for place in places if place is not None and place.layer in _OF_ALL), None)


def _joined(group: Sequence[Diagnostic]) -> Diagnostic:
    first, *others = group
    return replace(first, notes=(*first.notes, *(_note(each, first) for each in others)))


def _note(found: Diagnostic, first: Diagnostic) -> Note:
    """Say another finding, with its help where that is another, and its place likewise."""
    has_own_help = found.help is not None and found.help != first.help
    return Note(
        message=f"{found.message}; {found.help}" if has_own_help else found.message,
        origin=None if found.origin == first.origin else found.origin,
    )
