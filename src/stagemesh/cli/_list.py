"""The work of `stagemesh list`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Final

from stagemesh.plan.render import table
from stagemesh.spec.axis import Axis
from stagemesh.spec.connector import ConnectorSpec
from stagemesh.spec.engine import EngineSpec
from stagemesh.spec.pipeline import PipelineConfig
from stagemesh.spec.registry import AXES, CONNECTORS, ENGINES, MODELS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """How one kind of plug-in is listed."""

    entries: Callable[[], list[dict[str, object]]]
    columns: tuple[str, ...]


def run(namespace: argparse.Namespace) -> int:
    """Print what is installed of one kind, by name."""
    listing = _LISTINGS[namespace.kind]
    entries = listing.entries()
    if namespace.json:
        sys.stdout.write(json.dumps({namespace.kind: entries}, indent=2) + "\n")
        return 0
    rows = [listing.columns]
    rows += [tuple(_cell(entry[column]) for column in listing.columns) for entry in entries]
    heading = [tuple(column.replace("_", " ") for column in rows[0])]
    sys.stdout.write("\n".join(table([*heading, *rows[1:]])) + "\n")
    sys.stdout.write(f"\nnext: `stagemesh list {namespace.kind} --json` tells more\n")
    return 0


def _cell(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "-"
    return "-" if value is None else str(value)


def _values(members: Iterable[Enum]) -> list[str]:
    return sorted(str(member.value) for member in members)


def _names(options: type) -> list[str]:
    return [item.name for item in fields(options)]


def _models() -> list[dict[str, object]]:
    return [_model(pipeline) for pipeline in MODELS.declarations()]


def _model(pipeline: PipelineConfig) -> dict[str, object]:
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
    }


def _duplex(pipeline: PipelineConfig) -> str | None:
    """Whether sessions can speak both ways at once, and whether they do where nothing is said."""
    if pipeline.duplex is None:
        return None
    return "default" if pipeline.duplex.default_session_mode == "duplex" else "yes"


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
        entries=_models, columns=("name", "takes", "gives", "duplex", "runs", "variant_of")
    ),
    "axes": _Listing(entries=_axes, columns=("name", "fits", "role", "summary")),
    "connectors": _Listing(
        entries=_connectors, columns=("name", "config_names", "reach", "summary")
    ),
    "engines": _Listing(entries=_engines, columns=("name", "runs", "executes", "summary")),
}
