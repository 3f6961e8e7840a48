"""A plan as a deploy file of vllm-omni (its documented schema), as far as that goes.

What that system has no word for is listed in comments with its path, and what no deploy file says
is in the command; nothing is dropped without a line. The layout can also be given to it as
`--stage-overrides`, which a comment holds.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Final, cast

from stagemesh.config.catalog import Catalog
from stagemesh.config.launch import given_options
from stagemesh.config.plain import plain, plain_fields
from stagemesh.config.schema_duplex import DuplexSession
from stagemesh.plan.export.dump import comments, written, yaml_text
from stagemesh.plan.export.launch_words import launch_words
from stagemesh.plan.export.vllm_omni_edges import edge_words
from stagemesh.plan.export.vllm_omni_stages import stage_words
from stagemesh.plan.restate import restated
from stagemesh.plan.values import Plan, StagePlan
from stagemesh.plan.wide_values import LAUNCH
from stagemesh.spec.axis import WorldRole
from stagemesh.spec.patterns import Policy
from stagemesh.spec.pipeline import PipelineConfig

_RELEASE: Final = "0.30.0"
_NEWER: Final = frozenset(
    {
        "cuda_mps",
        "weight_transfer_config",
        "duplex_session.replica_policy",
        "duplex_session.max_sessions_per_replica",
        "duplex_session.replica_groups",
    }
)
"""Fields that its documentation has, and that its release does not read."""
_POLICIES: Final[Mapping[str, str]] = {
    Policy.ROUND_ROBIN.value: "round-robin",
    Policy.RANDOM.value: "random",
    Policy.LEAST_QUEUE.value: "least-queue-length",
}
"""Its names of policies."""
_FLAGS: Final = frozenset(
    {
        "stage_id",
        "headless",
        "omni_master_address",
        "omni_master_port",
        "omni_replica_address",
        "omni_dp_size_local",
        "api_server_count",
        "worker_backend",
        "ray_address",
        "omni_heartbeat_timeout",
        "stage_init_timeout",
        "init_timeout",
    }
)
"""Launch options that both systems have."""
_PIPELINE: Final = "pipeline"
_SESSION: Final = "duplex_session"
_APART: Final = ("connectors", "edges", "stages")
"""Parts of a deploy file that are said apart."""


def vllm_omni(plan: Plan, catalog: Catalog) -> str:
    """Write the deploy file, with what it cannot express above it."""
    said = restated(plan, catalog)
    deploy = cast("Mapping[str, object]", said.deploy_config)
    strategies = cast("Mapping[str, Mapping[str, object]]", said.strategy_config)["strategies"]
    entries = cast("list[Mapping[str, object]]", deploy["stages"])
    edges = edge_words(plan, catalog)
    stages = [
        stage_words(
            stage, entry, cast("list[Mapping[str, object]]", strategies[stage.name]), catalog
        )
        for stage, entry in zip(plan.stages, entries, strict=True)
    ]
    policy = _policy(plan)
    unsaid = [
        *_unknown_pipeline(_pipeline_of(plan, catalog)),
        *(line for words in stages for line in words.unsaid),
        *edges.unsaid,
        *([] if policy else _policies(plan, catalog)),
        *_unknown_flags(plan),
    ]
    body = {**_root(plan, deploy, catalog), **edges.root}
    body["stages"] = [
        {
            "stage_id": stage.stage_id,
            **words.layout,
            **words.fields,
            **edges.of_stages.get(stage.stage_id, {}),
        }
        for stage, words in zip(plan.stages, stages, strict=True)
    ]
    layouts = zip(plan.stages, (words.layout for words in stages), strict=True)
    overrides = {str(stage.stage_id): layout for stage, layout in layouts}
    flags = " ".join(part for part in (policy, launch_words(plan, _FLAGS)) if part)
    heading = [*_heading(plan, flags, overrides), *_newer(body), *_listed(unsaid)]
    return comments(heading) + yaml_text(body)


def _heading(plan: Plan, flags: str, overrides: Mapping[str, object]) -> Iterator[str]:
    path = shlex.quote(plan.checkpoint.path)
    command = f"vllm serve {path} --omni --deploy-config THIS_FILE {flags}".rstrip()
    yield f"vllm-omni deploy file of a plan for `{plan.pipeline}`, made for {_devices(plan)}."
    yield f"Start it with `{command}`,"
    yield "or give the layout alone:"
    yield f"`--stage-overrides {shlex.quote(json.dumps(overrides))}`"


def _devices(plan: Plan) -> str:
    return f"{plan.devices.count} {plan.devices.kind} devices"


def _newer(body: Mapping[str, object]) -> Iterator[str]:
    session = cast("Mapping[str, object]", body.get(_SESSION, {}))
    names = [*body, *(f"{_SESSION}.{name}" for name in session)]
    newer = ", ".join(f"`{name}`" for name in names if name in _NEWER)
    if newer:
        yield ""
        yield f"Newer than its release {_RELEASE}: {newer}."


def _listed(unsaid: list[str]) -> Iterator[str]:
    if unsaid:
        yield ""
        yield "vllm-omni cannot express:"
        yield from (f"- {line}" for line in unsaid)


# --- the root -------------------------------------------------------------------------------------


def _root(plan: Plan, deploy: Mapping[str, object], catalog: Catalog) -> dict[str, object]:
    """Every field of the pipeline as a whole; both systems have the same, with equal defaults."""
    found = {name: value for name, value in deploy.items() if name not in _APART}
    if _is_found_by_class(_pipeline_of(plan, catalog)):
        del found[_PIPELINE]
    if plan.session.duplex is not None:
        given = cast("Mapping[str, object]", found.pop(_SESSION))
        usual = plain_fields(DuplexSession())
        changed = {name: value for name, value in given.items() if plain(value) != usual[name]}
        found |= {_SESSION: changed} if changed else {}
    return found


def _pipeline_of(plan: Plan, catalog: Catalog) -> PipelineConfig:
    return next(
        each.pipeline for each in catalog.models if each.pipeline.model_type == plan.pipeline
    )


def _is_found_by_class(pipeline: PipelineConfig) -> bool:
    """Whether it is what that system makes of a `model_index.json` unasked, without a name."""
    return bool(pipeline.diffusers_class_names) and len(pipeline.stages) == 1


def _unknown_pipeline(pipeline: PipelineConfig) -> Iterator[str]:
    """Pipelines without a counterpart; that system says so when it starts."""
    shown = f"`pipeline: {pipeline.model_type}`"
    if pipeline.diffusers_class_names and pipeline.variant_of is not None:
        yield f"{shown}: it runs such a checkpoint as one stage"
    elif pipeline.checkpoint_recipe is not None:
        yield f"{shown}: a pipeline of stagemesh"


def _unknown_flags(plan: Plan) -> Iterator[str]:
    for name, value in given_options(plan.launch).items():
        if name not in _FLAGS:
            yield f"{written(f'{LAUNCH}.{name}', value)}, a flag of stagemesh"


# --- routing --------------------------------------------------------------------------------------


def _chosen(plan: Plan) -> list[StagePlan]:
    return [stage for stage in plan.stages if len(stage.replicas) > 1]


def _policy(plan: Plan) -> str:
    """Return the flag for the one policy that system has; empty where one cannot hold for all."""
    several = {stage.policy for stage in _chosen(plan)}
    [only] = several if len(several) == 1 else [""]
    return f"--omni-lb-policy {_POLICIES[only]}" if only in _POLICIES else ""


def _policies(plan: Plan, catalog: Catalog) -> Iterator[str]:
    """Say of every stage with replicas which policy it would need."""
    for stage in _chosen(plan):
        for axis in stage.axes:
            if catalog.axes[axis.axis].role is WorldRole.MULTIPLIES_REPLICAS:
                why = "it has one policy for all" if stage.policy in _POLICIES else "it has no such"
                yield f"`{stage.name}.{axis.axis}.routing: {stage.policy}`: {why}"
