"""One given value against the annotation of the declaration that takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from stagemesh.config.check import Annotation, check
from stagemesh.config.place import Nowhere, Place
from stagemesh.config.settings import Sourced
from stagemesh.plan.report import Report
from stagemesh.spec.origin import Origin


def typed(
    annotation: Annotation,
    value: object,
    origin: Origin,
    label: str,
    report: Report,
    parts: Mapping[str | int, Sourced[object]] = MappingProxyType({}),
) -> object:
    """Return the typed value, or `UNSET` once `report` has what is wrong with it.

    `parts` are the members of a mapping: what is wrong with one of them is told at its own place.
    """
    place = Place(located=Nowhere(source=origin.source), label=label)
    checked = check(annotation, value, place)
    for found in checked.diagnostics:
        path = "" if found.origin is None else found.origin.path
        part = parts.get(path.partition(".")[0])
        report.add(replace(found, origin=origin if part is None else part.origin))
    return checked.value
