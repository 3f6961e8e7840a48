"""A plan as one flat deploy file. What only a strategy file can say stands above it as comments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, cast

from stagemesh.config.catalog import Catalog
from stagemesh.plan.export.dump import comments, yaml_text
from stagemesh.plan.export.launch_words import launch_words
from stagemesh.plan.export.stage_fields import (
    BINDINGS,
    axis_fields,
    device_list,
    engine_defaults,
)
from stagemesh.plan.restate import restated
from stagemesh.plan.values import Plan

_Entry: TypeAlias = Mapping[str, object]
_MAPPINGS: Final = ("env", "default_sampling_params", "additional_config")
"""Stage fields that hold members, none where nothing is said."""
_LISTS: Final = ("connectors", "edges")


def deploy_yaml(plan: Plan, catalog: Catalog) -> str:
    """Write a deploy file that leads to this plan; with the strategy in its comments where needed.

    Axes become the stage fields that say the same. An axis with a member that no field says keeps
    its whole entry in the comments, so that nothing is said in two places.
    """
    said = restated(plan, catalog)
    deploy = dict(cast("Mapping[str, object]", said.deploy_config))
    strategies = cast("Mapping[str, Mapping[str, list[_Entry]]]", said.strategy_config)
    entries = cast("list[dict[str, object]]", deploy["stages"])
    left: dict[str, list[_Entry]] = {}
    stages = []
    for stage, entry in zip(plan.stages, entries, strict=True):
        own = _own(entry, engine_defaults(stage, catalog))
        fields: dict[str, object] = {"stage_id": stage.stage_id, "devices": device_list(stage)}
        for axis, written in zip(stage.axes, strategies["strategies"][stage.name], strict=True):
            found = axis_fields(axis, catalog.axes[axis.axis])
            if found.unsaid or any(name in written for name in BINDINGS):
                left.setdefault(stage.name, []).append(written)
            else:
                fields |= found.fields
        stages.append({**fields, **own})
    body = {name: value for name, value in deploy.items() if value or name not in _LISTS}
    body["stages"] = stages
    return comments([*_heading(plan), *_strategy(left)]) + yaml_text(body)


def _heading(plan: Plan) -> list[str]:
    devices = f"{plan.devices.count} {plan.devices.kind} devices"
    lines = [f"Deploy file of a plan for `{plan.pipeline}`, made for {devices}."]
    flags = launch_words(plan)
    return [*lines, f"No file says how it is started: give `{flags}`, too."] if flags else lines


def _strategy(left: Mapping[str, list[_Entry]]) -> list[str]:
    if not left:
        return []
    text = yaml_text({"strategies": left})
    return [
        "What follows cannot be said here. Write it into a file and give it with",
        "`--strategy-config`:",
        "",
        *text.splitlines(),
    ]


def _own(entry: Mapping[str, object], defaults: Mapping[str, object]) -> dict[str, object]:
    """Leave out what says nothing: arguments at their defaults, and empty mappings of members.

    `null` and an empty list are values wherever the default is another.
    """
    return {
        name: value
        for name, value in entry.items()
        if (name not in defaults or defaults[name] != value) and (value or name not in _MAPPINGS)
    }
