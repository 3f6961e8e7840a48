"""What this host has for the processes that run here: CPUs and memory, and a daemon for GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from stagemesh.errors import DiagnosticError
from stagemesh.plan.values import Plan, StagePlan
from stagemesh.runtime.launchers.mps import Mps
from stagemesh.runtime.launchers.mps_daemon import PIPE
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
        self._mps = Mps(plan, replicas)

    async def open(self) -> None:
        """Prepare, before anything runs here; raises `DiagnosticError` for what there is not."""
        if found := check_bindings(self._plan, self._replicas, self._numa):
            raise DiagnosticError(found)
        await self._mps.open()

    def around(self, stage: StagePlan, replica: int) -> tuple[Surroundings, ...]:
        """Return what each process of a replica is to find; `stage` has its variables."""
        directory = self._mps.directory(ReplicaId(stage=stage.stage_id, replica=replica))
        variables = {**stage.env, PIPE: directory} if directory else stage.env
        hidden = frozenset({PIPE} if directory == "" else ())
        return tuple(
            Surroundings(
                variables=variables,
                hidden=hidden,
                binding=binding(stage, replica, ranks, self._numa),
            )
            for ranks in _processes(stage)
        )

    def seen(self, where: ReplicaId, saved_plan: str) -> str:
        """Return the plan as a replica is to be told it: its devices are called as it sees them."""
        return self._mps.seen(where, saved_plan)

    def ready(self, where: ReplicaId, name: str, pid: int) -> None:
        """The process of a replica has loaded; say in the log if it does without what it has."""
        self._mps.ready(where, name, pid)

    async def close(self) -> None:
        """End what was prepared, once nothing runs here any more; a second call does nothing."""
        await self._mps.close()


def _processes(stage: StagePlan) -> Sequence[Sequence[int]]:
    """Ranks of each process that is started for a replica: one each, unless the engine does so."""
    ranks = range(stage.world_size)
    if len(ranks) == 1:
        return [ranks]
    (engine,) = ENGINES.load(stage.engine)
    return [ranks] if engine.owns_ranks else [[rank] for rank in ranks]
