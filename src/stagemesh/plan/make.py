"""From what the user gave to a plan: reads the configuration, then builds."""

from __future__ import annotations

from dataclasses import dataclass

from stagemesh.config.catalog import Catalog
from stagemesh.config.checkpoint import Checkpoint
from stagemesh.config.document import Document
from stagemesh.config.environment import check_environment
from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.config.load import load
from stagemesh.plan.build import PlanRequest, build
from stagemesh.plan.devices import devices_from
from stagemesh.plan.values import CheckpointPlan, Plan
from stagemesh.spec.diagnostic import Diagnostic


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A plan, or what stands against it, with the sources for showing lines at fault."""

    plan: Plan | None
    """The plan; `None` when a diagnostic is an error."""
    diagnostics: tuple[Diagnostic, ...]
    """Everything found, warnings too."""
    documents: tuple[Document, ...]
    """What was read."""


def make(inputs: PlanInputs, host: Host, catalog: Catalog | None = None) -> Made:
    """Read, check and plan; every mistake of every input is told at once."""
    catalog = Catalog.installed() if catalog is None else catalog
    devices = devices_from(inputs.devices, host)
    platform = None if isinstance(devices, Diagnostic) else devices.platform
    loaded = load(inputs, catalog, platform)
    # a malformed variable may also have been in the way of reading
    diagnostics = list(dict.fromkeys((*check_environment(), *loaded.diagnostics)))
    if isinstance(devices, Diagnostic):
        diagnostics.append(devices)
        return Made(plan=None, diagnostics=tuple(diagnostics), documents=loaded.documents)
    if loaded.pipeline is None or loaded.settings is None or loaded.checkpoint is None:
        return Made(plan=None, diagnostics=tuple(diagnostics), documents=loaded.documents)
    request = PlanRequest(
        pipeline=loaded.pipeline,
        settings=loaded.settings,
        checkpoint=_checkpoint_plan(loaded.checkpoint),
        facts=loaded.checkpoint.facts,
        skipped=loaded.checkpoint.skipped,
        devices=devices,
    )
    result = build(request, catalog)
    diagnostics.extend(result.diagnostics)
    failed = any(found.is_error for found in diagnostics)
    return Made(
        plan=None if failed else result.plan,
        diagnostics=tuple(diagnostics),
        documents=loaded.documents,
    )


def _checkpoint_plan(checkpoint: Checkpoint) -> CheckpointPlan:
    """Say in the plan's words which checkpoint was read."""
    return CheckpointPlan(path=str(checkpoint.path), config_hash=checkpoint.config_hash)
