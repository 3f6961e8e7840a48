"""How a running system is, stage by stage and replica by replica."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from stagemesh.runtime.load import Trail
from stagemesh.spec.frozen import frozen


class ReplicaState(Enum):
    """Where a replica stands."""

    STARTING = "starting"
    """Its process loads; that takes as long as it takes, up to the limit of a start."""
    SERVING = "serving"
    """It takes requests."""
    UNHEALTHY = "unhealthy"
    """It does not answer, or has been in one step for too long; it takes no requests."""
    RESTARTING = "restarting"
    """It died, and is started again after a delay."""
    DRAINING = "draining"
    """It takes no more requests, and leaves when those that it has are done."""
    STOPPED = "stopped"
    """It died, and is not started again by itself."""


class SystemState(Enum):
    """Where a system stands as a whole."""

    STARTING = "starting"
    """It is not up yet."""
    SERVING = "serving"
    """Every stage has a replica that takes requests."""
    UNHEALTHY = "unhealthy"
    """Some stage has none: requests fail at once."""
    DRAINING = "draining"
    """It takes no more requests, and ends."""
    STOPPED = "stopped"
    """It has ended."""


@frozen
class ReplicaHealth:
    """One replica."""

    replica: int
    """Its number."""
    state: ReplicaState
    """Where it stands."""
    pid: int | None
    """Its process, which leads a group of its own; `None` where there is none."""
    num_restarts: int
    """How often it has been started again."""
    step_s: float
    """For how long its engine had been in one step when it last answered; `0` while it sleeps."""
    num_missed: int
    """Questions that it was spared because it has not answered the one before."""
    trail: Trail
    """What it has counted, as far as that was told."""
    values: Mapping[str, object]
    """What its own start has decided for its stage, such as the engine; empty before it is up."""
    reason: str | None
    """Why it is not serving, when it is not; the last lines that it wrote included."""


@frozen
class StageHealth:
    """One stage."""

    stage: str
    """Its name."""
    replicas: tuple[ReplicaHealth, ...]
    """Its replicas in order."""

    @property
    def is_healthy(self) -> bool:
        """Whether some replica takes requests."""
        return any(each.state is ReplicaState.SERVING for each in self.replicas)


@frozen
class Health:
    """The whole system."""

    state: SystemState
    """Where it stands."""
    stages: tuple[StageHealth, ...]
    """Its stages in order; empty before it is started."""

    @classmethod
    def of(cls, stages: tuple[StageHealth, ...], *, is_draining: bool) -> Health:
        """A system that is up, with these stages."""
        if is_draining:
            return cls(state=SystemState.DRAINING, stages=stages)
        is_healthy = all(stage.is_healthy for stage in stages)
        state = SystemState.SERVING if is_healthy else SystemState.UNHEALTHY
        return cls(state=state, stages=stages)
