"""From the merged tree to typed settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import cast

from stagemesh.config.catalog import Catalog
from stagemesh.config.check import checker
from stagemesh.config.fields import StageField
from stagemesh.config.merge import Branch, MergedPlace, sourced, value_of
from stagemesh.config.place import Place, Run
from stagemesh.config.schema import ConnectorEntry
from stagemesh.config.settings import (
    AxisSettings,
    ConnectorSettings,
    Settings,
    Sourced,
    StageSettings,
)
from stagemesh.config.tree import quoted
from stagemesh.spec.axis import Owner
from stagemesh.spec.diagnostic import did_you_mean
from stagemesh.spec.patterns import Policy
from stagemesh.spec.pipeline import PipelineConfig, StagePipelineConfig
from stagemesh.spec.unset import UNSET

_CONNECTORS = "connectors"
_AXES = "axes"


def settle(
    roots: Mapping[int | None, Branch],
    pipeline: PipelineConfig,
    catalog: Catalog,
    fields: Mapping[str, StageField],
    run: Run,
) -> Settings:
    """Build the settings; what only the whole shows to be wrong goes to `run`."""
    common = roots.get(None)
    children = common.children if common is not None else {}
    return Settings(
        fields={str(key): sourced(node) for key, node in children.items() if key != _CONNECTORS},
        connectors=_connectors(children.get(_CONNECTORS), catalog, run),
        stages=tuple(
            _stage(stage, roots.get(stage.stage_id), fields, run) for stage in pipeline.stages
        ),
    )


def _stage(
    stage: StagePipelineConfig, root: Branch | None, fields: Mapping[str, StageField], run: Run
) -> StageSettings:
    axes: dict[str, AxisSettings] = {}
    values: dict[str, Sourced[object]] = {}
    for key, node in root.children.items() if root is not None else ():
        if key == _AXES and isinstance(node, Branch):
            axes = _axes(node)
            continue
        given = sourced(node)
        if given.value is UNSET:
            continue
        located = MergedPlace(branch=root) if root is not None else None
        assert located is not None
        place = Place(located=located, path=(key,), label=f"{stage.model_stage}.{key}")
        typed = fields[str(key)].check(given.value, place, run)
        values[str(key)] = dataclasses.replace(given, value=typed)
    return StageSettings(stage_id=stage.stage_id, name=stage.model_stage, axes=axes, fields=values)


def _axes(branch: Branch) -> dict[str, AxisSettings]:
    """Build the axes that are on; one whose flag says `false` is as if it had not been given."""
    found: dict[str, AxisSettings] = {}
    for name, node in branch.children.items():
        assert isinstance(node, Branch)
        enabled = node.children.get("enabled")
        if not isinstance(enabled, Sourced) or enabled.value is False:
            continue
        label = node.children.get("label")
        options = node.children.get("options")
        found[str(name)] = AxisSettings(
            axis=str(name),
            size=cast("Sourced[int] | None", node.children.get("size")),
            routing=cast("Sourced[Policy] | None", node.children.get("routing")),
            owner=cast("Sourced[Owner] | None", node.children.get("owner")),
            label=str(value_of(label)) if label is not None else str(name),
            options=cast(
                "Mapping[str, Sourced[object]]", {} if options is None else sourced(options).parts
            ),
            origin=enabled.origin,
        )
    return found


def _connectors(node: object, catalog: Catalog, run: Run) -> dict[str, ConnectorSettings]:
    found: dict[str, ConnectorSettings] = {}
    for name, entry in node.children.items() if isinstance(node, Branch) else ():
        if isinstance(entry, Branch) and value_of(entry) is not UNSET:
            settings = _connector(str(name), entry, catalog, run)
            if settings is not None:
                found[str(name)] = settings
    return found


def _connector(name: str, branch: Branch, catalog: Catalog, run: Run) -> ConnectorSettings | None:
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
    options = checker(spec.options)(entry.extra, place.child("extra"), run)
    if options is UNSET:
        return None
    return ConnectorSettings(name=name, connector=spec.name, options=options, origin=branch.origin)
