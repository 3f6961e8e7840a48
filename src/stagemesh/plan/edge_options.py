"""What the model can be told about an edge, given beside the options of its connector."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain

from stagemesh.config.check import hints
from stagemesh.config.plain import plain_fields
from stagemesh.config.settings import ConnectorSettings
from stagemesh.plan.refusal import make_options
from stagemesh.plan.report import Report
from stagemesh.plan.typed import typed
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.pipeline import StagePipelineConfig
from stagemesh.spec.unset import UNSET


def edge_options(
    producer: StagePipelineConfig, connector: ConnectorSettings | None, report: Report
) -> Mapping[str, object]:
    """Return the model's options for an edge that leaves `producer`, defaults filled in."""
    kind = producer.edge_options
    given = {} if connector is None else connector.edge_options
    taken = {
        name: typed(annotation, given[name], name, report)
        for name, annotation in hints(kind).items()
        if name in given
    }
    if UNSET in taken.values():
        return {}
    made, refusals = make_options(kind, taken)
    what = f"an option of the edges of `{producer.model_stage}` is refused"
    origins = {name: given[name].origin for name in taken}
    report.add(*(refusal.told("PL025", what, origins) for refusal in refusals))
    return {} if refusals else plain_fields(made)


def report_idle_options(
    connectors: Mapping[str, ConnectorSettings],
    carried: Mapping[str | None, Collection[StagePipelineConfig]],
    report: Report,
) -> None:
    """Report options of the model that none of the edges has which their connector carries.

    `carried` are the producers of those edges; a connector without edges is reported elsewhere.
    """
    for name, producers in carried.items():
        known = {option for each in producers for option in hints(each.edge_options)}
        given = connectors[name].edge_options if name is not None else {}
        for option, value in given.items():
            if option not in known:
                report.add(
                    Diagnostic(
                        code="MD026",
                        message=f"connector `{name}` carries no edge that has a `{option}`",
                        origin=value.origin,
                        help=_help(option, chain.from_iterable(carried.values())),
                    )
                )


def _help(option: str, producers: Iterable[StagePipelineConfig]) -> str:
    """Say whose edges have an option that those of a connector do not have."""
    owners = [each.model_stage for each in producers if option in hints(each.edge_options)]
    if not owners:
        return "leave it out: no edge of this pipeline has it"
    listed = ", ".join(f"`{name}`" for name in dict.fromkeys(owners))
    return f"edges out of {listed} have it: write it in the connector that carries those"
