"""The edges of a plan in the words of vllm-omni: connectors, who names them, limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from stagemesh.config.catalog import Catalog
from stagemesh.config.plain import plain_fields
from stagemesh.plan.edge_values import CONNECTOR, edge_path
from stagemesh.plan.export.dump import written
from stagemesh.plan.values import EdgePlan, Plan
from stagemesh.spec.connector import ConnectorSpec
from stagemesh.spec.frozen import frozen


@frozen
class EdgeWords:
    """All edges in the words of the other system."""

    root: Mapping[str, object] = field(default_factory=dict)
    """What stands at the root of the file."""
    of_stages: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    """What stands in the entries of stages, by their numbers."""
    unsaid: tuple[str, ...] = ()
    """What it has no word for."""


def edge_words(plan: Plan, catalog: Catalog) -> EdgeWords:
    """Say everything about edges; edges with equal connectors share one.

    A connector that system does not have is told, and its own default carries the edge there.
    """
    specs = {spec.name: spec for spec in catalog.connectors.values()}
    usual = next(spec for spec in specs.values() if spec.is_default)
    connectors: dict[str, dict[str, object]] = {}
    of_stages: dict[int, dict[str, dict[str, str]]] = {}
    unsaid: list[str] = []
    for edge in plan.edges:
        spec = specs[edge.connector]
        written_as = usual if spec.shared_options is None else spec
        name = _named(_connector(edge, written_as), written_as, connectors)
        outgoing = of_stages.setdefault(edge.source, {}).setdefault("output_connectors", {})
        incoming = of_stages.setdefault(edge.target, {}).setdefault("input_connectors", {})
        outgoing[f"to_stage_{edge.target}"] = incoming[f"from_stage_{edge.source}"] = name
        unsaid += _unsaid(edge, spec)
    root: dict[str, object] = {"connectors": connectors} if connectors else {}
    if any(_limits(edge) for edge in plan.edges):
        root["edges"] = [
            {"from": edge.source, "to": edge.target, **_limits(edge)} for edge in plan.edges
        ]
    return EdgeWords(root=root, of_stages=of_stages, unsaid=tuple(unsaid))


def _named(
    entry: dict[str, object], spec: ConnectorSpec, known: dict[str, dict[str, object]]
) -> str:
    """Find the connector that says the same, or add it under a name of its own."""
    found = next((name for name, other in known.items() if other == entry), None)
    if found is None:
        found = spec.name if spec.name not in known else f"{spec.name}_{len(known)}"
        known[found] = entry
    return found


def _connector(edge: EdgePlan, spec: ConnectorSpec) -> dict[str, object]:
    """Spell out the options that both systems have, and those of the model."""
    both = spec.shared_options or ()
    shared = {name: value for name, value in edge.options.items() if name in both}
    said = {**shared, **edge.model_options}
    extra = {name: value for name, value in said.items() if value is not None}
    return {"name": spec.config_names[0], **({"extra": extra} if extra else {})}


def _unsaid(edge: EdgePlan, spec: ConnectorSpec) -> Iterator[str]:
    usual = plain_fields(spec.options())
    if spec.shared_options is None:
        yield f"{written(f'{edge_path(edge)}.{CONNECTOR}', spec.name)}, a connector of stagemesh"
    for name, value in edge.options.items():
        if name not in (spec.shared_options or ()) and value != usual[name]:
            shown = written(f"{edge_path(edge)}.{name}", value)
            yield f"{shown}, an option of connector `{spec.name}`"
    for name, value in _limits(edge).items():
        yield f"{written(f'{edge_path(edge)}.{name}', value)}, which it reads without acting on it"


def _limits(edge: EdgePlan) -> dict[str, int]:
    limits = {"window_size": edge.window_size, "max_inflight": edge.max_inflight}
    return {name: value for name, value in limits.items() if value is not None}
