"""What is installed of each kind of plug-in, as tables and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields
from enum import Enum
from typing import Final

from stagemesh.cli._listed_plans import listed_plans, plan_rows
from stagemesh.cli._screen import columns, show_json, show_text
from stagemesh.plan.table import table
from stagemesh.spec.axis import Axis, WorldRole
from stagemesh.spec.connector import ConnectorSpec
from stagemesh.spec.engine import EngineSpec
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import ExecutionType, PipelineConfig
from stagemesh.spec.registry import AXES, CONNECTORS, ENGINES, MODELS


@frozen
class _Listing:
    """How one kind of plug-in is listed."""

    entries: Callable[[], list[dict[str, object]]]
    """Makes what is known about each of them."""
    columns: tuple[str, ...]
    """Keys of the entries that the table shows."""
    tables: tuple[Callable[[], list[tuple[str, ...]]], ...] = ()
    """Make further tables below it; one without rows is not shown."""
    more: Mapping[str, Callable[[], list[dict[str, object]]]] = field(default_factory=dict)
    """Further keys of the data, and what makes each."""


def show_kind(kind: str, following: str, *, as_json: bool) -> None:
    """Print what is installed of one kind, and the next useful command."""
    listing = _LISTINGS[kind]
    entries = listing.entries()
    if as_json:
        show_json({kind: entries, **{name: listed() for name, listed in listing.more.items()}})
        return
    width = columns(sys.stdout)
    for rows in [_rows(entries, listing.columns), *(made() for made in listing.tables)]:
        if rows:
            sys.stdout.write("\n".join([*table(rows, width, headed=True), "", ""]))
    show_text(f"next: {following}")


def _rows(entries: Sequence[Mapping[str, object]], names: Sequence[str]) -> list[tuple[str, ...]]:
    heading = tuple(name.replace("_", " ") for name in names)
    return [heading, *(tuple(_cell(entry[name]) for name in names) for entry in entries)]


def _cell(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "-"
    return "-" if value is None else str(value)


def _values(members: Iterable[Enum]) -> list[str]:
    return sorted(str(member.value) for member in members)


def _names(options: type) -> list[str]:
    return [item.name for item in fields(options)]


def _models() -> list[dict[str, object]]:
    engines = ENGINES.declarations()
    return [_model(pipeline, engines) for pipeline in MODELS.declarations()]


def _model(pipeline: PipelineConfig, engines: Sequence[EngineSpec]) -> dict[str, object]:
    return {
        "name": pipeline.model_type,
        "variant_of": pipeline.variant_of,
        "takes": list(pipeline.input_modalities),
        "gives": [each.final_output_type for each in pipeline.stages if each.final_output],
        "duplex": _duplex(pipeline),
        "stages": [stage.model_stage for stage in pipeline.stages],
        "runs": "yes" if pipeline.planning_only is None else "planning only",
        "summary": pipeline.summary,
        "architectures": list(pipeline.hf_architectures),
        "planning_only": pipeline.planning_only,
        "execution_types": [stage.execution_type.value for stage in pipeline.stages],
        "support": [
            {"stage": stage.model_stage, **_support(stage.execution_type, engines)}
            for stage in pipeline.stages
        ],
    }


def _duplex(pipeline: PipelineConfig) -> str | None:
    """Whether sessions can speak both ways at once, and whether they do where nothing is said."""
    if pipeline.duplex is None:
        return None
    return "default" if pipeline.duplex.default_session_mode == "duplex" else "yes"


def _support(kind: ExecutionType, engines: Sequence[EngineSpec]) -> dict[str, object]:
    """What happens to each axis on stages of a kind that take their default engine."""
    fitting = [axis for axis in AXES.declarations() if kind in axis.fits]
    found = (each for each in engines if kind in each.default_for)
    engine = min(found, key=lambda each: each.name, default=None)
    executes = frozenset() if engine is None else engine.executes
    replicas = WorldRole.MULTIPLIES_REPLICAS
    runs = [axis for axis in fitting if axis.name in executes or axis.role is replicas]
    return {
        "execution_type": kind.value,
        "engine": None if engine is None else engine.name,
        "runs": [axis.name for axis in runs] if engine is not None else [],
        "plans": [axis.name for axis in fitting if axis not in runs or engine is None],
    }


def _matrix() -> list[tuple[str, ...]]:
    engines = ENGINES.declarations()
    rows: list[tuple[str, ...]] = [
        ("stages of kind", "engine", "axes that run", "axes that are only planned")
    ]
    for kind in ExecutionType:
        support = _support(kind, engines)
        engine = support["engine"] or "none yet"
        cells = (support[name] for name in ("runs", "plans"))
        rows.append((kind.value, str(engine), *map(_cell, cells)))
    return rows


def _plans() -> list[dict[str, object]]:
    return listed_plans(MODELS.declarations(), AXES.declarations())


def _plan_rows() -> list[tuple[str, ...]]:
    return plan_rows(MODELS.declarations(), AXES.declarations())


def _axes() -> list[dict[str, object]]:
    engines = ENGINES.declarations()
    return [_axis(axis, engines) for axis in AXES.declarations()]


def _axis(axis: Axis, engines: Iterable[EngineSpec]) -> dict[str, object]:
    return {
        "name": axis.name,
        "fits": _values(axis.fits),
        "role": axis.role.value,
        "summary": axis.summary,
        "routing": type(axis.routing).__name__,
        "aggregation": type(axis.aggregation).__name__,
        "owner": axis.owner.value,
        "policies": [policy.value for policy in axis.policies],
        "deploy_fields": [sets.name for sets in axis.deploy_fields],
        "options": _names(axis.options),
        "excludes": dict(axis.excludes),
        "executed_by": [engine.name for engine in engines if axis.name in engine.executes],
    }


def _connectors() -> list[dict[str, object]]:
    return [_connector(connector) for connector in CONNECTORS.declarations()]


def _connector(connector: ConnectorSpec) -> dict[str, object]:
    return {
        "name": connector.name,
        "config_names": list(connector.config_names),
        "reach": connector.reach.value,
        "summary": connector.summary,
        "options": _names(connector.options),
    }


def _engines() -> list[dict[str, object]]:
    return [_engine(engine) for engine in ENGINES.declarations()]


def _engine(engine: EngineSpec) -> dict[str, object]:
    return {
        "name": engine.name,
        "runs": _values(engine.runs),
        "default_for": _values(engine.default_for),
        "executes": sorted(engine.executes),
        "summary": engine.summary,
        "options": _names(engine.options),
        "params": _names(engine.params),
    }


_LISTINGS: Final[Mapping[str, _Listing]] = {
    "models": _Listing(
        entries=_models,
        columns=("name", "takes", "gives", "duplex", "runs", "variant_of"),
        tables=(_matrix, _plan_rows),
        more={"plans": _plans},
    ),
    "axes": _Listing(entries=_axes, columns=("name", "fits", "role", "summary")),
    "connectors": _Listing(
        entries=_connectors, columns=("name", "config_names", "reach", "summary")
    ),
    "engines": _Listing(entries=_engines, columns=("name", "runs", "executes", "summary")),
}
