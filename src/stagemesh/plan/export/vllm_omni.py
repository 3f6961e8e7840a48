"""A plan as a deploy file of vllm-omni (its documented schema of version 0.30), as far as it goes.

What that system has no word for is listed in comments, with the reason; nothing is dropped without
a line. The same stage fields can be given to it as `--stage-overrides`, which a comment holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Final, cast

from stagemesh.config.catalog import Catalog
from stagemesh.config.check import hints
from stagemesh.config.kind_fields import KIND_FIELDS
from stagemesh.config.plain import plain_fields
from stagemesh.config.tree import quoted
from stagemesh.plan.export.dump import comments, yaml_text
from stagemesh.plan.export.stage_fields import axis_fields, device_list, engine_defaults
from stagemesh.plan.restate import restated
from stagemesh.plan.values import AxisPlan, Plan, StagePlan
from stagemesh.spec.axis import WorldRole
from stagemesh.spec.frozen import frozen
from stagemesh.spec.patterns import Policy
from stagemesh.spec.pipeline import ExecutionType

_WRAPPER_FIELDS: Final = (
    "env",
    "default_sampling_params",
    "additional_config",
    "input_connectors",
    "output_connectors",
)
"""Stage fields beside those of the engine that both systems have."""

_ROUTING: Final = "routing"


@frozen
class _Stage:
    """One stage in the words of the other system."""

    fields: Mapping[str, object] = field(default_factory=dict)
    layout: Mapping[str, object] = field(default_factory=dict)
    unsaid: tuple[str, ...] = ()


def vllm_omni(plan: Plan, catalog: Catalog) -> str:
    """Write the deploy file, with what it cannot express above it."""
    said = cast("Mapping[str, object]", restated(plan, catalog).deploy_config)
    entries = cast("list[dict[str, object]]", said["stages"])
    stages = [
        _stage(stage, entry, catalog) for stage, entry in zip(plan.stages, entries, strict=True)
    ]
    policies, contradiction = _policies(plan)
    unsaid = [*(line for stage in stages for line in stage.unsaid), *contradiction]
    overrides = {
        str(stage.stage_id): words.layout for stage, words in zip(plan.stages, stages, strict=True)
    }
    heading = [
        f"vllm-omni deploy file of a plan for `{plan.pipeline}`. Start it with",
        f"`vllm serve {plan.checkpoint.path} --omni --deploy-config THIS_FILE{policies}`,",
        "or give the layout alone:",
        f"`--stage-overrides '{json.dumps(overrides)}'`",
        *(["", "vllm-omni cannot express:"] if unsaid else []),
        *(f"- {line}" for line in unsaid),
    ]
    body: dict[str, object] = {"async_chunk": plan.async_chunk}
    connectors = cast("Mapping[str, object]", said.get("connectors", {}))
    if connectors:
        body["connectors"] = {name: _connector(entry) for name, entry in connectors.items()}
    body["stages"] = [
        {"stage_id": stage.stage_id, **words.layout, **words.fields}
        for stage, words in zip(plan.stages, stages, strict=True)
    ]
    return comments(heading) + yaml_text(body)


def _stage(stage: StagePlan, entry: Mapping[str, object], catalog: Catalog) -> _Stage:
    known = {name for declared in KIND_FIELDS for name in hints(declared)} | {*_WRAPPER_FIELDS}
    defaults = engine_defaults(stage, catalog)
    fields = {
        name: value
        for name, value in entry.items()
        if name in known and value not in (None, {}, ()) and defaults.get(name) != value
    }
    unsaid = [
        f"`{stage.name}.{name}: {quoted(value)[1:-1]}`, an argument of engine `{stage.engine}`"
        for name, value in stage.engine_args.items()
        if name not in known and defaults.get(name) != value
    ]
    layout: dict[str, object] = {"devices": device_list(stage)}
    kind = ExecutionType(stage.execution_type)
    for axis in stage.axes:
        found = axis_fields(axis, catalog.axes[axis.axis], spelled_out_for=kind)
        layout |= found.fields
        unsaid += _unsaid(stage, axis, [name for name in found.unsaid if name != _ROUTING], catalog)
    return _Stage(fields=fields, layout=layout, unsaid=tuple(unsaid))


def _unsaid(
    stage: StagePlan, axis: AxisPlan, members: list[str], catalog: Catalog
) -> Iterator[str]:
    declared = catalog.axes[axis.axis]
    if members:
        yield f"axis `{axis.axis}` of `{stage.name}`: {', '.join(f'`{each}`' for each in members)}"
    if declared.policies and declared.role is WorldRole.MULTIPLIES_RANKS:
        policy = axis.routing.args.get("policy")
        if policy != plain_fields(declared.routing).get("policy"):
            yield f"axis `{axis.axis}` of `{stage.name}`: `routing: {policy}` is not carried out"


def _policies(plan: Plan) -> tuple[str, list[str]]:
    """Return the flag for the one policy that system has, and why it cannot hold for all."""
    chosen = {stage.name: stage.policy for stage in plan.stages if len(stage.replicas) > 1}
    names = {
        Policy.ROUND_ROBIN.value: "round-robin",
        Policy.RANDOM.value: "random",
        Policy.LEAST_QUEUE.value: "least-queue-length",
    }
    several = sorted(set(chosen.values()))
    if not several:
        return "", []
    if len(several) > 1:
        shown = ", ".join(f"`{stage}`: {policy}" for stage, policy in chosen.items())
        return "", [f"a routing policy for each stage ({shown}): it has one for all"]
    if several[0] not in names:
        return "", [f"routing policy `{several[0]}`"]
    return f" --omni-lb-policy {names[several[0]]}", []


def _connector(entry: object) -> dict[str, object]:
    """Its options are ours; that system's connector of the same name has its own."""
    return {"name": cast("Mapping[str, object]", entry)["name"]}
