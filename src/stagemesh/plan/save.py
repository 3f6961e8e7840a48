"""A plan as a file and back: exactly the same values, or diagnostics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from stagemesh.config.catalog import Catalog
from stagemesh.config.check import check
from stagemesh.config.document import Findings, Source, read_json
from stagemesh.config.host import Host
from stagemesh.config.place import Place
from stagemesh.plan.edges import bridge_of, edges_of
from stagemesh.plan.plain import plain_fields
from stagemesh.plan.values import PLAN_VERSION, CheckpointPlan, Plan
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Layer, Origin


def to_json(plan: Plan) -> str:
    """Write a plan as JSON text with a newline at its end; equal plans give equal text."""
    return json.dumps(plain_fields(plan), indent=2, ensure_ascii=False) + "\n"


def from_json(text: str, source: str = "plan.json") -> Plan | tuple[Diagnostic, ...]:
    """Read what `to_json` wrote; `source` is how messages call it."""
    findings: Findings = []
    document = read_json(text, Source(name=source, layer=Layer.GLOBAL, expected="a plan"), findings)
    if document is None:
        return tuple(findings)
    if findings:
        return tuple(findings)
    place = Place(located=document)
    version = document.value.get("version")
    if version != PLAN_VERSION or isinstance(version, bool):
        return (_wrong_version(document.value, place.origin),)
    checked = check(Plan, document.value, place)
    return checked.diagnostics or _plan(checked.value)


def _plan(value: object) -> Plan:
    assert isinstance(value, Plan)
    return value


def _wrong_version(value: Mapping[str | int, object], origin: Origin) -> Diagnostic:
    if "version" not in value:
        return Diagnostic(
            code="PL040",
            message="this is no saved plan: it has no `version`",
            origin=origin,
            help="`stagemesh plan MODEL -o plan.json` writes one",
        )
    return Diagnostic(
        code="PL041",
        message=f"the plan has version `{value['version']}`, and only `{PLAN_VERSION}` can be read",
        origin=origin,
        help="plan again with `stagemesh plan MODEL -o plan.json`",
    )


def drift(
    plan: Plan, checkpoint: CheckpointPlan, host: Host, catalog: Catalog | None = None
) -> tuple[Diagnostic, ...]:
    """Say why a saved plan fits this checkpoint, machine or installation no longer.

    A plan names code by reference; only what the installed pipeline declares itself is let through.
    """
    installed = Catalog.installed() if catalog is None else catalog
    found = (
        *_other_pipeline(plan, installed),
        *_other_checkpoint(plan, checkpoint),
        *_other_host(plan, host),
    )
    return tuple(
        Diagnostic(code=code, message=message, help="plan again with `stagemesh plan`")
        for code, message in found
    )


def _other_pipeline(plan: Plan, catalog: Catalog) -> Iterator[tuple[str, str]]:
    known = {model.pipeline.model_type: model.pipeline for model in catalog.models}
    pipeline = known.get(plan.pipeline)
    if pipeline is None:
        yield "PL046", f"the pipeline `{plan.pipeline}` of the plan is not installed"
        return
    planned = [
        (stage.stage_id, stage.name, stage.execution_type, stage.loader, stage.model_subdir)
        for stage in plan.stages
    ]
    declared = [
        (
            stage.stage_id,
            stage.model_stage,
            stage.execution_type.value,
            stage.loader,
            stage.model_subdir,
        )
        for stage in pipeline.stages
    ]
    producers = {stage.stage_id: stage for stage in pipeline.stages}
    edges = [(edge.source, edge.target) for edge in plan.edges]
    bridges = (
        edge.bridge == bridge_of(producers[edge.source], chunked=edge.chunked)
        for edge in plan.edges
    )
    if planned != declared or edges != edges_of(pipeline) or not all(bridges):
        yield "PL047", f"the plan does not match the `{plan.pipeline}` that is installed"


def _other_checkpoint(plan: Plan, checkpoint: CheckpointPlan) -> Iterator[tuple[str, str]]:
    if plan.checkpoint.config_hash != checkpoint.config_hash:
        yield "PL042", f"the checkpoint `{checkpoint.path}` has changed since the plan was made"


def _other_host(plan: Plan, host: Host) -> Iterator[tuple[str, str]]:
    devices = plan.devices
    if devices.imaginary:
        return  # the plan says itself that it cannot be run
    if devices.kind != host.kind:
        yield "PL043", f"the plan is for `{devices.kind}` devices, and this host has `{host.kind}`"
    elif host.count is not None and devices.count > host.count:
        yield "PL044", f"the plan uses `{devices.count}` devices, and this host has `{host.count}`"
    elif host.count is None and host.memory_bytes is not None:
        needed = (devices.memory_bytes or 0) * devices.count
        if needed > host.memory_bytes:
            yield "PL045", "this host has less memory than the one that the plan was made for"
