"""From what the user gave to a plan: reads the configuration, then builds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.document import Document
from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs, opened_once
from stagemesh.config.load import Loaded
from stagemesh.plan.build import build
from stagemesh.plan.prepare import Prepared, prepare
from stagemesh.plan.replaced import without
from stagemesh.plan.values import Plan
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Origin

_SAID_TWICE: Final = "CF067"
"""Says that two places of one layer disagree."""


@frozen
class Made:
    """A plan, or what stands against it, with the sources for showing lines at fault."""

    plan: Plan | None
    """The plan; `None` when a diagnostic is an error."""
    diagnostics: tuple[Diagnostic, ...]
    """Everything found, warnings too."""
    documents: tuple[Document, ...]
    """What was read."""
    loaded: Loaded | None = field(default=None, compare=False)
    """What the plan was made from; `None` when nothing could be read."""
    saved: str | None = field(default=None, compare=False)
    """The file of a saved plan; `None` for one that was made now."""


def make(inputs: PlanInputs, host: Host, catalog: Catalog | None = None) -> Made:
    """Read, check and plan; every mistake of every input is told at once."""
    catalog = Catalog.installed() if catalog is None else catalog
    inputs = opened_once(inputs)
    prepared = prepare(inputs, host, catalog)
    plan, found = None, prepared.diagnostics
    if prepared.request is not None:
        result = build(prepared.request, catalog)
        plan, found = result.plan, (*found, *result.diagnostics)
        if plan is None:
            found = _helped(found, prepared, _Offers(inputs, host, catalog))
    return Made(
        plan=None if any(each.is_error for each in found) else plan,
        diagnostics=found,
        documents=prepared.documents,
        loaded=prepared.loaded,
    )


class _Offers:
    """Offers, each tried before it is made: with what was given, it has to lead to a plan."""

    def __init__(self, inputs: PlanInputs, host: Host, catalog: Catalog) -> None:
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


def _helped(
    found: tuple[Diagnostic, ...], prepared: Prepared, offers: _Offers
) -> tuple[Diagnostic, ...]:
    """Add the layout that would fit to what stands against one that does not."""
    from stagemesh.plan.fit.suggest import set_values, with_suggestion  # noqa: PLC0415  on failure

    assert prepared.request is not None
    return with_suggestion(
        found, prepared.request, offers.catalog, lambda offer: offers.work(set_values(offer))
    )
