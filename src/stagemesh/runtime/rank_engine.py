"""The engine of one rank, made from the plan in the process that it is to run in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, cast

from stagemesh.config.host import VISIBLE
from stagemesh.plan.values import Plan, StagePlan
from stagemesh.runtime.declared import declared_stage
from stagemesh.runtime.options import typed
from stagemesh.spec.engine import Engine, EngineContext, Rendezvous
from stagemesh.spec.reference import resolve
from stagemesh.spec.registry import ENGINES

_CPU: Final = "cpu"


def rank_engine(
    plan: Plan, stage: StagePlan, replica: int, *, rank: int, rendezvous: Rendezvous | None
) -> Engine:
    """Return the engine, not loaded; from now on this process sees its own devices alone."""
    (spec,) = ENGINES.load(stage.engine)
    declared = declared_stage(plan, stage.name)
    ranks = next(each.ranks for each in stage.replicas if each.index == replica)
    own = [each.device for each in ranks if spec.owns_ranks or each.rank == rank]
    context = EngineContext(
        stage=stage.name,
        checkpoint=Path(plan.checkpoint.path),
        model_subdir=stage.model_subdir,
        loader=stage.loader,
        device=_device(plan, own),
        rank=rank,
        world_size=stage.world_size,
        async_chunk=plan.async_chunk,
        owns_tokenizer=stage.owns_tokenizer,
        args=typed(spec.options, stage.engine_args),
        model_args=typed(declared.options, stage.model_args),
        model_params=declared.params,
        groups={axis.axis: axis.groups for axis in stage.axes if axis.groups},
        rendezvous=rendezvous,
        max_sessions=0 if plan.session.duplex is None else plan.session.duplex.worker_sessions,
    )
    return cast("Any", resolve(spec.factory))(context)  # type: ignore[no-any-return]


def _device(plan: Plan, own: list[int]) -> str:
    """Hide all devices but a process' own, where the driver names them; return the first.

    A library that takes the first device it finds, or a context that is made by the way, would
    else land on one that belongs to another rank.
    """
    kind, ids = plan.devices.kind, plan.devices.ids
    if kind == _CPU:
        return kind
    if not ids:
        return f"{kind}:{own[0]}"
    os.environ[VISIBLE] = ",".join(ids[device] for device in own)
    return f"{kind}:0"
