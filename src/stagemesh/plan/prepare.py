"""From what the user gave to all that a plan is made from."""

from __future__ import annotations

from stagemesh.config.catalog import Catalog
from stagemesh.config.checkpoint import Checkpoint
from stagemesh.config.document import Document
from stagemesh.config.environment import check_environment
from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.config.load import Loaded, load
from stagemesh.plan.build import PlanRequest
from stagemesh.plan.devices import devices_from
from stagemesh.plan.reach import reaching
from stagemesh.plan.values import CheckpointPlan
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.frozen import frozen


@frozen
class Prepared:
    """A request for a plan, or what stands against it."""

    request: PlanRequest | None
    """The request; `None` when inputs could not be understood."""
    diagnostics: tuple[Diagnostic, ...]
    """Everything found while reading."""
    documents: tuple[Document, ...]
    """What was read."""
    loaded: Loaded
    """What the inputs say together."""


def prepare(
    inputs: PlanInputs, host: Host, catalog: Catalog, *, flag: str = "--devices"
) -> Prepared:
    """Read everything once; every mistake of every input is told at once.

    `flag` is what messages call the devices.
    """
    devices = devices_from(inputs.devices, host, flag)
    platform = None if isinstance(devices, Diagnostic) else devices.platform
    loaded = load(inputs, catalog, platform)
    # a malformed variable may also have been in the way of reading
    diagnostics = list(dict.fromkeys((*check_environment(), *loaded.diagnostics)))
    request = None
    if isinstance(devices, Diagnostic):
        diagnostics.append(devices)
    elif loaded.pipeline and loaded.settings and loaded.checkpoint:
        request = PlanRequest(
            pipeline=loaded.pipeline,
            settings=reaching(loaded.settings, loaded.checkpoint.facts, catalog.axes),
            checkpoint=_checkpoint_plan(loaded.checkpoint),
            facts=loaded.checkpoint.facts,
            skipped=loaded.checkpoint.skipped,
            devices=devices,
        )
    return Prepared(
        request=request,
        diagnostics=tuple(diagnostics),
        documents=loaded.documents,
        loaded=loaded,
    )


def _checkpoint_plan(checkpoint: Checkpoint) -> CheckpointPlan:
    """Say in the plan's words which checkpoint was read."""
    return CheckpointPlan(path=str(checkpoint.path), config_hash=checkpoint.config_hash)
