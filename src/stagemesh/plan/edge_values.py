"""Where everything that holds on an edge came from: its connector, that one's options, its limits.

A path is `edges.0-1.NAME`, with the numbers of the two stages. What a file says about a connector
keeps the path that it has there as well: `connectors.NAME.extra.OPTION`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from stagemesh.config.edges import EDGES
from stagemesh.config.settings import ConnectorSettings, Settings, Sourced
from stagemesh.plan.edges import edges_of, named_connectors
from stagemesh.plan.provenance import value_plan, values_of
from stagemesh.plan.report import Report
from stagemesh.plan.values import EdgePlan, ValuePlan
from stagemesh.spec.origin import Layer
from stagemesh.spec.pipeline import PipelineConfig

CONNECTORS: Final = "connectors"
"""First part of the paths of what connectors say."""
CONNECTOR: Final = "connector"
"""Last part of the path of the connector that an edge has."""
EXTRA: Final = "extra"
"""Key of the options of a connector."""
LIMITS: Final = ("window_size", "max_inflight")
"""What an edge has besides its connector and the options of that."""


def edge_path(edge: EdgePlan) -> str:
    """Return the path below which everything about an edge stands."""
    return f"{EDGES}.{edge.source}-{edge.target}"


def held_by_edge(edge: EdgePlan) -> Mapping[str, object]:
    """Return what holds on an edge, by name."""
    return {
        CONNECTOR: edge.connector,
        **edge.options,
        **edge.model_options,
        "window_size": edge.window_size,
        "max_inflight": edge.max_inflight,
    }


def edge_values(
    pipeline: PipelineConfig, settings: Settings, edges: Iterable[EdgePlan]
) -> Mapping[str, ValuePlan]:
    """Say of every value that was given for connectors and edges where it came from."""
    found: dict[str, ValuePlan] = {}
    for name, said in settings.connectors.items():
        found |= values_of({f"{CONNECTORS}.{name}.{key}": each for key, each in said.given.items()})
    named = named_connectors(edges_of(pipeline), settings, Report())  # reported when planned
    for edge in edges:
        path = edge_path(edge)
        for place in named.get((edge.source, edge.target), [])[:1]:
            found[f"{path}.{CONNECTOR}"] = ValuePlan(
                value=place.name,
                layer=place.origin.layer.name.lower(),
                origin=str(place.origin),
                is_default=place.origin.shipped or place.origin.layer <= Layer.PIPELINE,
            )
            found |= _options(path, edge, settings.connectors[place.name])
        found |= {f"{path}.{name}": value for name, value in _limits(edge, settings)}
    return found


def _options(path: str, edge: EdgePlan, said: ConnectorSettings) -> Mapping[str, ValuePlan]:
    """Options that its connector brings; those that only other edges have are left out."""
    extra = said.given.get(EXTRA)
    held = held_by_edge(edge)
    given = {} if extra is None else extra.parts
    return values_of({f"{path}.{name}": part for name, part in given.items() if name in held})


def _limits(edge: EdgePlan, settings: Settings) -> Iterator[tuple[str, ValuePlan]]:
    """Lists replace each other as a whole, so what a lower one says of a limit is replaced."""
    given = settings.fields.get(EDGES, settings.cleared.get(EDGES))
    if given is None:
        return
    first, *lower = (_entry(edge, each) for each in (given, *given.superseded))
    for name in LIMITS:
        below = tuple(entry.parts[name] for entry in lower if name in entry.parts)
        if below or name in first.parts:
            own = first.parts.get(name)
            said = Sourced(
                value=None if own is None else own.value,
                origin=first.origin if own is None else own.origin,
                superseded=below,
                clears=own is None,
            )
            yield name, value_plan(said)


def _entry(edge: EdgePlan, written: Sourced[object]) -> Sourced[object]:
    """Return what a list says about an edge; the list where it says nothing, as `null` does."""
    for entry in written.parts.values():
        if (entry.parts["from"].value, entry.parts["to"].value) == _ends(edge):
            return entry
    return Sourced(value=None, origin=written.origin)


def _ends(edge: EdgePlan) -> tuple[int, int]:
    return edge.source, edge.target
