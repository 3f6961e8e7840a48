"""One given value against the annotation of the declaration that takes it."""

from __future__ import annotations

from dataclasses import replace

from stagemesh.config.check import Annotation, check
from stagemesh.config.place import Nowhere, Place
from stagemesh.plan.report import Report
from stagemesh.spec.origin import Origin


def typed(
    annotation: Annotation, value: object, origin: Origin, label: str, report: Report
) -> object:
    """Return the typed value, or `UNSET` once `report` has what is wrong with it."""
    place = Place(located=Nowhere(source=origin.source), label=label)
    checked = check(annotation, value, place)
    report.add(*(replace(found, origin=origin) for found in checked.diagnostics))
    return checked.value
