"""A plan as one flat deploy file. What only a strategy file can say stands above it as comments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from stagemesh.config.catalog import Catalog
from stagemesh.plan.export.dump import comments, yaml_text
from stagemesh.plan.export.stage_fields import axis_fields, device_list, engine_defaults
from stagemesh.plan.restate import restated
from stagemesh.plan.values import Plan


def deploy_yaml(plan: Plan, catalog: Catalog) -> str:
    """Write a deploy file that leads to this plan; with the strategy in its comments where needed.

    Axes become the stage fields that say the same. An axis with a member that no field says keeps
    its whole entry in the comments, so that nothing is said in two places.
    """
    said = restated(plan, catalog)
    deploy = dict(cast("Mapping[str, object]", said.deploy_config))
    strategies = cast("Mapping[str, Mapping[str, list[object]]]", said.strategy_config)
    entries = cast("list[dict[str, object]]", deploy["stages"])
    left: dict[str, list[object]] = {}
    stages = []
    for stage, entry in zip(plan.stages, entries, strict=True):
        defaults = engine_defaults(stage, catalog)
        own = {name: value for name, value in entry.items() if defaults.get(name) != value}
        fields: dict[str, object] = {"stage_id": stage.stage_id, "devices": device_list(stage)}
        for axis, written in zip(stage.axes, strategies["strategies"][stage.name], strict=True):
            found = axis_fields(axis, catalog.axes[axis.axis])
            if found.unsaid:
                left.setdefault(stage.name, []).append(written)
            else:
                fields |= found.fields
        stages.append(_shown({**fields, **own}))
    body = yaml_text(_shown({**deploy, "stages": stages}))
    return comments([*_heading(plan), *_strategy(left)]) + body


def _heading(plan: Plan) -> list[str]:
    devices = f"{plan.devices.count} {plan.devices.kind} devices"
    return [f"Deploy file of a plan for `{plan.pipeline}`, made for {devices}."]


def _strategy(left: Mapping[str, list[object]]) -> list[str]:
    if not left:
        return []
    text = yaml_text({"strategies": left})
    return [
        "What follows cannot be said here. Write it into a file and give it with",
        "`--strategy-config`:",
        "",
        *text.splitlines(),
    ]


def _shown(entry: Mapping[str, object]) -> dict[str, object]:
    """Leave out what says nothing: empty mappings and lists, and values that are not given."""
    return {name: value for name, value in entry.items() if value not in (None, {}, (), [])}
