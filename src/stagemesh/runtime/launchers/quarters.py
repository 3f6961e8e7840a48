"""What this host has for the processes that run here: which CPUs and memory each is bound to."""

from __future__ import annotations

from collections.abc import Sequence

from stagemesh.errors import DiagnosticError
from stagemesh.plan.values import Plan, StagePlan
from stagemesh.runtime.launchers.numa import binding, check_bindings, read_numa
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.surroundings import Surroundings
from stagemesh.spec.registry import ENGINES


def here(plan: Plan) -> tuple[ReplicaId, ...]:
    """Replicas that the start of this plan runs on its own host."""
    launch = plan.launch
    return tuple(
        ReplicaId(stage=stage.stage_id, replica=replica.index)
        for stage in plan.stages
        for replica in stage.replicas
        if launch.stage_id is None
        or (stage.stage_id == launch.stage_id and replica.index < launch.omni_dp_size_local)
    )


class Quarters:
    """Where the processes of some replicas live. All methods belong to one loop."""

    def __init__(self, plan: Plan, replicas: Sequence[ReplicaId]) -> None:
        """Prepare nothing yet."""
        self._plan = plan
        self._replicas = replicas
        self._numa = read_numa(plan.devices)

    async def open(self) -> None:
        """Prepare, before anything runs here; raises `DiagnosticError` for what there is not."""
        if found := check_bindings(self._plan, self._replicas, self._numa):
            raise DiagnosticError(found)

    def around(self, stage: StagePlan, replica: int) -> tuple[Surroundings, ...]:
        """Return what each process of a replica is to find; `stage` has its variables."""
        return tuple(
            Surroundings(variables=stage.env, binding=binding(stage, replica, ranks, self._numa))
            for ranks in _processes(stage)
        )

    async def close(self) -> None:
        """End what was prepared."""


def _processes(stage: StagePlan) -> Sequence[Sequence[int]]:
    """Ranks of each process that is started for a replica: one each, unless the engine does so."""
    ranks = range(stage.world_size)
    if len(ranks) == 1:
        return [ranks]
    (engine,) = ENGINES.load(stage.engine)
    return [ranks] if engine.owns_ranks else [[rank] for rank in ranks]
