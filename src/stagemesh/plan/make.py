"""From what the user gave to a plan: reads the configuration, then builds."""

from __future__ import annotations

from dataclasses import field

from stagemesh.config.catalog import Catalog
from stagemesh.config.document import Document
from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs, opened_once
from stagemesh.config.load import Loaded
from stagemesh.plan.build import build
from stagemesh.plan.offers import Offers
from stagemesh.plan.prepare import Prepared, prepare
from stagemesh.plan.values import Plan
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.frozen import frozen


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
            found = _helped(found, prepared, Offers(inputs, host, catalog))
    return Made(
        plan=None if any(each.is_error for each in found) else plan,
        diagnostics=found,
        documents=prepared.documents,
        loaded=prepared.loaded,
    )


def _helped(
    found: tuple[Diagnostic, ...], prepared: Prepared, offers: Offers
) -> tuple[Diagnostic, ...]:
    """Add the layout that would fit to what stands against one that does not."""
    from stagemesh.plan.fit.suggest import set_values, with_suggestion  # noqa: PLC0415  on failure

    assert prepared.request is not None
    return with_suggestion(
        found, prepared.request, offers.catalog, lambda offer: offers.work(set_values(offer))
    )
