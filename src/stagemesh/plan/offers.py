"""Whether values of `--set` that a message would offer lead to a plan with what was given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.build import build
from stagemesh.plan.prepare import Prepared, prepare
from stagemesh.plan.replaced import without
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Origin

_SAID_TWICE: Final = "CF067"
"""Says that two places of one layer disagree."""


class Offers:
    """Offers, each tried before it is made: with what was given, it has to lead to a plan."""

    def __init__(self, inputs: PlanInputs, host: Host, catalog: Catalog) -> None:
        """Keep what was given, and where it is planned."""
        self._inputs = inputs
        self._host = host
        self.catalog = catalog

    def work(self, values: tuple[str, ...]) -> bool:
        """Whether the values of `--set` lead to a plan, in place of those that they contradict."""
        prepared, replaced = self._prepared(self._inputs, values), frozenset[Origin]()
        while told := _said_twice(prepared.diagnostics) - replaced:
            replaced |= told  # of several stages with the same mistake one is told at a time
            prepared = self._prepared(without(self._inputs, replaced), values)
        return (
            prepared.request is not None
            and not any(each.is_error for each in prepared.diagnostics)
            and build(prepared.request, self.catalog).plan is not None
        )

    def _prepared(self, given: PlanInputs, values: tuple[str, ...]) -> Prepared:
        inputs = replace(given, set_values=(*given.set_values, *values))
        return prepare(inputs, self._host, self.catalog)


def _said_twice(found: Iterable[Diagnostic]) -> frozenset[Origin]:
    """Places of values that another one of their layer contradicts."""
    return frozenset(
        place
        for each in found
        if each.code == _SAID_TWICE
        for place in (each.origin, *(note.origin for note in each.notes))
        if place is not None
    )
