"""All rules, and what they say together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from stagemesh.plan.causes import without_advice_on_errors
from stagemesh.plan.rules.chunks import chunks
from stagemesh.plan.rules.colocated import colocated
from stagemesh.plan.rules.context import Rule, RuleContext, Ruling
from stagemesh.plan.rules.endpoints import endpoints
from stagemesh.plan.rules.executor import executor
from stagemesh.plan.rules.idle import idle
from stagemesh.plan.rules.kernels import kernels
from stagemesh.plan.rules.lora import lora
from stagemesh.plan.rules.memory import memory
from stagemesh.plan.rules.mps import mps
from stagemesh.plan.rules.numa import numa
from stagemesh.plan.rules.recovery import recovery
from stagemesh.plan.rules.requests import requests
from stagemesh.plan.rules.runner import runner
from stagemesh.plan.rules.session import session
from stagemesh.plan.rules.shares import shares
from stagemesh.plan.rules.switched import switched
from stagemesh.plan.rules.weights import weights
from stagemesh.plan.setup import KernelsPlan, StageSetup

RULES: Final[tuple[Rule, ...]] = (
    session,
    runner,
    lora,
    requests,
    kernels,
    executor,
    numa,
    mps,
    shares,
    memory,
    chunks,
    endpoints,
    weights,
    recovery,
    colocated,
    switched,
    idle,
)
"""Every rule; their order is that of their messages and of nothing else."""

Value = TypeVar("Value")


def every_rule(context: RuleContext) -> Ruling:
    """Ask all rules; each value is decided by one of them."""
    ruled = [rule(context) for rule in RULES]
    found = tuple(itertools.chain.from_iterable(each.diagnostics for each in ruled))
    return Ruling(
        diagnostics=without_advice_on_errors(found),
        skipped=tuple(itertools.chain.from_iterable(each.skipped for each in ruled)),
        session=next((each.session for each in ruled if each.session is not None), None),
        weight_transfer=next(
            (each.weight_transfer for each in ruled if each.weight_transfer is not None), None
        ),
        active_stream_window=max(each.active_stream_window for each in ruled),
        runners=_joined(each.runners for each in ruled),
        executors=_joined(each.executors for each in ruled),
        numa=_joined(each.numa for each in ruled),
        mps=_joined(each.mps for each in ruled),
        shares=_joined(each.shares for each in ruled),
        kernels=_joined(each.kernels for each in ruled),
        hosts=_joined(each.hosts for each in ruled),
        recoveries=_joined(each.recoveries for each in ruled),
    )


def _joined(parts: Iterable[Mapping[int, Value]]) -> Mapping[int, Value]:
    return {stage: value for part in parts for stage, value in part.items()}


def setup_of(ruled: Ruling, stage_id: int) -> StageSetup:
    """Return what was decided about the processes of one stage."""
    return StageSetup(
        runner=ruled.runners[stage_id],
        executor=ruled.executors[stage_id],
        numa=ruled.numa.get(stage_id),
        mps=ruled.mps.get(stage_id),
        share=ruled.shares.get(stage_id),
        kernels=ruled.kernels.get(stage_id, KernelsPlan()),
        host=ruled.hosts.get(stage_id),
        recovery=ruled.recoveries[stage_id],
    )
