"""From the patches of all layers to typed settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import cast

from stagemesh.config.axes_off import off_findings
from stagemesh.config.axis_settings import axis_settings
from stagemesh.config.catalog import Catalog
from stagemesh.config.check import checker, hints
from stagemesh.config.chunks import chunk_findings
from stagemesh.config.cleared import as_written, cleared_values, switched_off
from stagemesh.config.edge_options import read_extra
from stagemesh.config.edges import EDGES
from stagemesh.config.extras import EXTRAS, take_extras
from stagemesh.config.fields import StageField
from stagemesh.config.merge import Branch, MergedPlace, Node, merge, sourced, value_of
from stagemesh.config.patch import Patch
from stagemesh.config.place import Place, Run
from stagemesh.config.schema import ConnectorEntry, DeployFile
from stagemesh.config.settings import (
    AxisSettings,
    ConnectorSettings,
    EdgeSettings,
    Settings,
    Sourced,
    StageSettings,
)
from stagemesh.config.tree import quoted
from stagemesh.spec.axis import Axis
from stagemesh.spec.diagnostic import did_you_mean
from stagemesh.spec.pipeline import PipelineConfig, StagePipelineConfig
from stagemesh.spec.unset import UNSET

_CONNECTORS = "connectors"
_AXES = "axes"
_EXTRA = "extra"


def settle(
    patches: Iterable[Patch],
    pipeline: PipelineConfig,
    catalog: Catalog,
    fields: Mapping[str, StageField],
    run: Run,
) -> Settings:
    """Merge the layers and build the settings; what only the whole shows goes to `run`."""
    roots, whole = merge(patches, run.findings), Run()
    common = roots.get(None)
    children = common.children if common is not None else {}
    settings = Settings(
        fields={} if common is None else _fields(common, whole),
        connectors=_connectors(children.get(_CONNECTORS), pipeline, catalog, whole),
        stages=tuple(
            _stage(stage, roots.get(stage.stage_id), catalog.axes, fields, whole)
            for stage in pipeline.stages
        ),
        edges=_edges(children.get(EDGES)),
        cleared={} if common is None else cleared_values(common),
    )
    run.findings.extend(whole.findings)
    run.findings.extend(off_findings(settings.stages, roots, pipeline, catalog.axes))
    run.findings.extend(chunk_findings(settings, pipeline))
    return settings


def _fields(root: Branch, run: Run) -> dict[str, Sourced[object]]:
    """Build the values of the whole pipeline."""
    values: dict[str, Sourced[object]] = {}
    for key, node in root.children.items():
        given, name = sourced(node), str(key)
        if name == _CONNECTORS or given.value is UNSET:
            continue
        if name == EDGES:
            values[name] = as_written(given)
            continue
        place = Place(located=MergedPlace(branch=root), path=(key,), label=name)
        typed = checker(hints(DeployFile)[name])(given.value, place, run)
        values[name] = dataclasses.replace(given, value=typed)
    return values


def _edges(node: object) -> tuple[EdgeSettings, ...]:
    return cast("tuple[EdgeSettings, ...]", node.value) if isinstance(node, Sourced) else ()


def _stage(
    stage: StagePipelineConfig,
    root: Branch | None,
    declared: Mapping[str, Axis],
    fields: Mapping[str, StageField],
    run: Run,
) -> StageSettings:
    if root is None:
        return StageSettings(stage_id=stage.stage_id, name=stage.model_stage, axes={}, fields={})
    place = Place(located=MergedPlace(branch=root), label=stage.model_stage)
    axes, extras = root.children.get(_AXES), root.children.get(EXTRAS)
    plain_keys = [key for key in root.children if key not in (_AXES, EXTRAS)]
    values = _typed({key: root.children[key] for key in plain_keys}, place, fields, run)
    if isinstance(extras, Branch):
        inside = _typed(extras.children, place.child(EXTRAS), fields, run)
        take_extras(inside, values, stage.model_stage, run)
    found: dict[str, AxisSettings] = {}
    if isinstance(axes, Branch):
        found = axis_settings(stage.model_stage, axes, declared, run)
    return StageSettings(
        stage_id=stage.stage_id,
        name=stage.model_stage,
        axes=found,
        fields=values,
        cleared={**switched_off(axes), **cleared_values(root)},
    )


def _typed(
    nodes: Mapping[str | int, Node], place: Place, fields: Mapping[str, StageField], run: Run
) -> dict[str, Sourced[object]]:
    values: dict[str, Sourced[object]] = {}
    for key, node in nodes.items():
        given = sourced(node)
        if given.value is not UNSET:
            typed = fields[str(key)].check(given.value, place.child(key), run)
            values[str(key)] = dataclasses.replace(given, value=typed)
    return values


def _connectors(
    node: object, pipeline: PipelineConfig, catalog: Catalog, run: Run
) -> dict[str, ConnectorSettings]:
    found: dict[str, ConnectorSettings] = {}
    for name, entry in node.children.items() if isinstance(node, Branch) else ():
        if isinstance(entry, Branch) and value_of(entry) is not UNSET:
            settings = _connector(str(name), entry, pipeline, catalog, run)
            if settings is not None:
                found[str(name)] = settings
    return found


def _connector(
    name: str, branch: Branch, pipeline: PipelineConfig, catalog: Catalog, run: Run
) -> ConnectorSettings | None:
    place = Place(located=MergedPlace(branch=branch), label=f"{_CONNECTORS}.{name}")
    entry = checker(ConnectorEntry)(value_of(branch), place, run)
    if not isinstance(entry, ConnectorEntry):
        return None
    spec = catalog.connectors.get(entry.name)
    if spec is None:
        here = place.child("name")
        help_text = did_you_mean(entry.name, catalog.connectors)
        run.tell("CF040", f"unknown connector {quoted(entry.name)}", here.origin, help_text)
        return None
    extra = read_extra(branch.at(_EXTRA), spec.options, pipeline, place.child(_EXTRA), run)
    if extra is None:
        return None
    return ConnectorSettings(
        name=name,
        connector=spec.name,
        options=extra.options,
        edge_options=extra.edge_options,
        given=sourced(branch).parts,
        origin=branch.origin,
    )
