"""Replacing weights while the stages run, as training by reinforcement needs it."""

from __future__ import annotations

from dataclasses import field
from typing import Final, Literal

from stagemesh.config.kind_fields import Count
from stagemesh.config.plain import plain_fields
from stagemesh.config.tree import quoted
from stagemesh.plan.report import Report
from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.rules.switched import switched_members
from stagemesh.plan.typed import typed
from stagemesh.plan.values import WeightTransferPlan
from stagemesh.spec.diagnostic import Diagnostic, Severity, did_you_mean
from stagemesh.spec.frozen import frozen
from stagemesh.spec.switch import Switch, acts_with

_FIELD: Final = "weight_transfer_config"
_KNOWN: Final = ("nccl", "ipc", "sparse_nccl", "sharded_rdt")
"""What carries weights in vLLM (`vllm/config/weight_transfer.py`); plug-ins register others."""
_PACKED: Final = acts_with(Switch(name="packed", on=(True,)))


@frozen
class WeightTransfer:
    """Keys of `weight_transfer_config`."""

    backend: str = "nccl"
    """What carries the weights."""
    reload_mode: Literal["layerwise", "direct"] | None = None
    """Whether a layer is loaded beside the old one (`layerwise`) or over it (`direct`)."""
    packed: bool | None = None
    """Whether tensors travel packed together."""
    packed_buffer_size_bytes: Count | None = field(default=None, metadata=_PACKED)
    """Bytes of one buffer of packed tensors."""
    packed_num_buffers: Count | None = field(default=None, metadata=_PACKED)
    """Buffers of packed tensors."""


def weights(context: RuleContext) -> Ruling:
    """Check the section and write it down."""
    given = context.wide(_FIELD)
    if given is None:
        return Ruling()
    report = Report()
    entry = typed(WeightTransfer, given, _FIELD, report)
    if not isinstance(entry, WeightTransfer):
        return Ruling(diagnostics=report.diagnostics)
    if entry.backend not in _KNOWN:
        report.add(
            Diagnostic(
                code="PL121",
                severity=Severity.WARNING,
                message=f"`{_FIELD}` names {quoted(entry.backend)}, which only a plug-in can bring",
                origin=given.at("backend"),
                help=did_you_mean(entry.backend, _KNOWN),
            )
        )
    report.add(*switched_members(_FIELD, WeightTransfer, given.parts))
    options = {
        name: value
        for name, value in plain_fields(entry).items()
        if name != "backend" and value is not None
    }
    planned = WeightTransferPlan(backend=entry.backend, options=options)
    return Ruling(diagnostics=report.diagnostics, weight_transfer=planned)
