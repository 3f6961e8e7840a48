"""What a server tells of the system under it."""

from __future__ import annotations

from collections.abc import Mapping

from stagemesh.runtime.health import Health, ReplicaHealth, SystemState
from stagemesh.runtime.omni import AsyncOmni


def can_serve(health: Health) -> bool:
    """Whether a request that comes now has somewhere to go."""
    return health.state is SystemState.SERVING


def health_form(health: Health) -> Mapping[str, object]:
    """How the system and every stage is, for balancers: no process is named."""
    return {
        "state": health.state.value,
        "stages": [
            {
                "stage": stage.stage,
                "is_healthy": stage.is_healthy,
                "replicas": [each.state.value for each in stage.replicas],
            }
            for stage in health.stages
        ],
    }


def state_form(omni: AsyncOmni) -> Mapping[str, object]:
    """Everything that is known of a system, for whoever runs it."""
    health = omni.health()
    queued = {
        omni.plan.stage(stage).name: replicas
        for stage, replicas in omni.measures().traffic.queued.items()
    }
    return {
        "pipeline": omni.plan.pipeline,
        "state": health.state.value,
        "stages": [
            {
                "stage": stage.stage,
                "replicas": [
                    replica_form(each, queued.get(stage.stage, {}).get(each.replica))
                    for each in stage.replicas
                ],
            }
            for stage in health.stages
        ],
    }


def replica_form(replica: ReplicaHealth, queued: int | None) -> Mapping[str, object]:
    """Everything that is known of a replica; `queued` is for those where requests wait."""
    trail = replica.trail
    return {
        "replica": replica.replica,
        "state": replica.state.value,
        "pid": replica.pid,
        "num_restarts": replica.num_restarts,
        "queued": queued,
        "running": trail.load.running,
        "waiting": trail.load.waiting,
        "outputs": trail.load.outputs,
        "outputs_per_s": trail.outputs_per_s,
        "first_output_s": trail.first_output_s,
        "step_s": replica.step_s,
        "num_missed": replica.num_missed,
        "reason": replica.reason,
    }
