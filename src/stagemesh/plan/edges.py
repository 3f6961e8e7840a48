"""Edges between stages: which connector carries each, and whether chunks or whole payloads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias, cast

from stagemesh.config.chunks import hands_over_chunks
from stagemesh.config.plain import plain_fields
from stagemesh.config.settings import ConnectorSettings, Settings, Sourced, StageSettings
from stagemesh.plan.colocate import connector_between
from stagemesh.plan.edge_options import edge_options, report_idle_options
from stagemesh.plan.report import Report
from stagemesh.plan.values import EdgePlan
from stagemesh.spec.connector import ConnectorSpec
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity, did_you_mean
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Origin
from stagemesh.spec.pipeline import PipelineConfig, StagePipelineConfig

Edge: TypeAlias = tuple[int, int]


@frozen
class _Side:
    """One of the two places where the connector of an edge can be named."""

    field: str
    key: str
    is_input: bool

    def keys(self, own: int, edges: Iterable[Edge]) -> Mapping[str, Edge]:
        """Return the edges of a stage on this side by the keys that name them."""
        if self.is_input:
            return {f"{self.key}{edge[0]}": edge for edge in edges if edge[1] == own}
        return {f"{self.key}{edge[1]}": edge for edge in edges if edge[0] == own}


_SIDES: Final = (
    _Side(field="output_connectors", key="to_stage_", is_input=False),
    _Side(field="input_connectors", key="from_stage_", is_input=True),
)


@frozen
class Named:
    """A connector that was named for an edge."""

    name: str
    """Its name in the deploy file."""
    origin: Origin
    """Where it was named."""


def effective_async_chunk(pipeline: PipelineConfig, settings: Settings, report: Report) -> bool:
    """Whether outputs go out in chunks: what was said, or else yes where a stage can.

    They go to the next stage; those of a pipeline of one stage go to the user.
    """
    sources = {source for source, _ in edges_of(pipeline)}
    able = any(
        stage.produces_chunks
        for stage in pipeline.stages
        if stage.stage_id in sources or not sources
    )
    given = settings.fields.get("async_chunk")
    if given is None or not given.value:
        return given is None and able
    # a shipped file may say for pipelines of several stages what one stage has no use for
    if not able and (sources or not given.origin.shipped):
        name = pipeline.model_type
        one = f"the one stage of `{name}` does not give its output in chunks"
        report.add(
            Diagnostic(
                code="PL033",
                message=f"no stage of `{name}` can hand over chunks" if sources else one,
                origin=given.origin,
                help="write `async_chunk: false`, or leave it out",
            )
        )
    return able


def edges_of(pipeline: PipelineConfig) -> list[Edge]:
    """Return all edges of a pipeline by source and target."""
    return sorted(
        (source, stage.stage_id) for stage in pipeline.stages for source in stage.input_sources
    )


def plan_edges(
    pipeline: PipelineConfig,
    settings: Settings,
    connectors: Mapping[str, ConnectorSpec],
    *,
    hosts: Mapping[int, int],
    async_chunk: bool,
    report: Report,
) -> tuple[EdgePlan, ...]:
    """Decide every edge; connectors that are unknown, contradictory or unused are reported.

    `hosts` says which stages run in the processes of which others.
    """
    edges = edges_of(pipeline)
    named = named_connectors(edges, settings, report)
    _report_unused(named, settings, report)
    stages = {stage.stage_id: stage for stage in pipeline.stages}
    willing = {stage.stage_id: hands_over_chunks(stage) for stage in settings.stages}
    limits = {(edge.source, edge.target): edge for edge in settings.edges}
    planned = []
    carried: dict[str | None, list[StagePipelineConfig]] = {}
    for edge in edges:
        chosen = settings.connectors[named[edge][0].name] if edge in named else None
        default = connector_between(edge, hosts, connectors)
        name, options = (
            (default.name, default.options())
            if chosen is None
            else (chosen.connector, chosen.options)
        )
        producer = stages[edge[0]]
        carried.setdefault(None if chosen is None else chosen.name, []).append(producer)
        chunked = async_chunk and producer.produces_chunks and willing[edge[0]]
        limit = limits.get(edge)
        planned.append(
            EdgePlan(
                source=edge[0],
                target=edge[1],
                connector=name,
                options=plain_fields(options),
                payload_type="+".join(producer.output_types),
                bridge=_bridge_of(producer, chunked=chunked),
                chunked=chunked,
                window_size=None if limit is None else limit.window_size,
                max_inflight=None if limit is None else limit.max_inflight,
                model_options=edge_options(producer, chosen, report),
            )
        )
    report_idle_options(settings.connectors, carried, report)
    return tuple(planned)


def _bridge_of(producer: StagePipelineConfig, *, chunked: bool) -> str | None:
    """Return the reference of the bridge on the edges that leave a stage."""
    if chunked:
        return producer.async_chunk_process_next_stage_input_func
    return producer.custom_process_next_stage_input_func


def named_connectors(
    edges: list[Edge], settings: Settings, report: Report
) -> Mapping[Edge, list[Named]]:
    """Return all names of each edge that are declared; those after the first agree with it."""
    found: dict[Edge, list[Named]] = {}
    for listed in settings.edges:
        if listed.connector is None:
            continue
        place = Named(name=listed.connector, origin=listed.place("connector"))
        if place.name in settings.connectors:
            found[listed.source, listed.target] = [place]
        else:
            report.add(_undeclared(place, settings.connectors))
    for stage in settings.stages:
        for side in _SIDES:
            possible = side.keys(stage.stage_id, edges)
            given = stage.fields.get(side.field)
            named = {} if given is None else cast("Mapping[str, str]", given.value)
            for key, name in named.items():
                place = Named(name=name, origin=cast("Sourced[object]", given).at(key))
                if key not in possible:
                    report.add(_no_edge(stage, side, key, place, possible))
                elif name not in settings.connectors:
                    report.add(_undeclared(place, settings.connectors))
                else:
                    names = found.setdefault(possible[key], [])
                    names.append(place)
                    _agree(possible[key], names[0], place, settings.connectors, report)
    return found


def _no_edge(
    stage: StageSettings, side: _Side, key: str, place: Named, possible: Iterable[str]
) -> Diagnostic:
    return Diagnostic(
        code="PL030",
        message=f"`{key}` of `{side.field}` is no edge of `{stage.name}`",
        origin=place.origin,
        help=did_you_mean(key, possible),
    )


def _undeclared(place: Named, declared: Collection[str]) -> Diagnostic:
    declare = f"declare `{place.name}` under `connectors:`"
    return Diagnostic(
        code="PL031",
        message=f"connector `{place.name}` is not declared",
        origin=place.origin,
        help=f"{did_you_mean(place.name, declared)}; or {declare}" if declared else declare,
    )


def _agree(
    edge: Edge,
    first: Named,
    second: Named,
    declared: Mapping[str, ConnectorSettings],
    report: Report,
) -> None:
    one, other = declared[first.name], declared[second.name]
    same = one.connector == other.connector and one.options == other.options
    if not same or one.edge_options != other.edge_options:
        report.add(
            Diagnostic(
                code="PL032",
                message=f"edge {edge[0]} -> {edge[1]} names `{first.name}` at one end"
                f" and `{second.name}` at the other",
                origin=second.origin,
                notes=(Note(message=f"`{first.name}` is named here", origin=first.origin),),
                help="name one connector at both ends, or at one end only",
            )
        )


def _report_unused(named: Mapping[Edge, list[Named]], settings: Settings, report: Report) -> None:
    used = {place.name for places in named.values() for place in places}
    for name, connector in settings.connectors.items():
        if name not in used:
            report.add(
                Diagnostic(
                    code="PL034",
                    severity=Severity.WARNING,
                    message=f"connector `{name}` carries no edge",
                    origin=connector.origin,
                    help="name it under `edges`, or in `output_connectors` or `input_connectors`"
                    " of a stage",
                )
            )
