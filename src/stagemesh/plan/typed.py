"""One given value against the annotation of the declaration that takes it."""

from __future__ import annotations

from stagemesh.config.check import Annotation, check
from stagemesh.config.place import Place
from stagemesh.config.settings import Sourced, Within
from stagemesh.plan.report import Report


def typed(annotation: Annotation, given: Sourced[object], label: str, report: Report) -> object:
    """Return the typed value, or `UNSET` once `report` has what is wrong with it.

    What is wrong with a member of a mapping or a list is told at the member's own place.
    """
    checked = check(annotation, given.value, Place(located=Within(given=given), label=label))
    report.add(*checked.diagnostics)
    return checked.value
