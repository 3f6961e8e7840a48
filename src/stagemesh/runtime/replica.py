"""One replica as the supervisor keeps it, across all processes that it has been and will be."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from stagemesh.plan.setup import RecoveryPlan
from stagemesh.plan.values import StagePlan
from stagemesh.runtime.health import ReplicaHealth, ReplicaState
from stagemesh.runtime.process import Incarnation, Process
from stagemesh.spec.frozen import frozen


@frozen
class ReplicaId:
    """One replica of one stage."""

    stage: int
    """The stage's id."""
    replica: int
    """Number of the replica."""


class Restarts:
    """The restart policy of one replica: when it may come back. Pure; times are given."""

    def __init__(self, plan: RecoveryPlan) -> None:
        """Nothing has happened yet."""
        self._plan = plan
        self._times: deque[float] = deque()

    def died(self, now: float) -> float | None:
        """Return after how many seconds it is started again; `None` for not at all."""
        plan = self._plan
        while self._times and self._times[0] <= now - plan.restart_window:
            self._times.popleft()
        if plan.restart == "never" or len(self._times) >= plan.max_restarts:
            return None
        delay = plan.restart_delay * 2.0 ** len(self._times)
        self._times.append(now)
        return min(delay, float(plan.restart_window))


@dataclass(eq=False, slots=True, kw_only=True)
class Member:
    """A replica; changes as it lives, dies and comes back."""

    where: ReplicaId
    stage: StagePlan
    restarts: Restarts
    state: ReplicaState = ReplicaState.STARTING
    num_restarts: int = 0
    process: Process | None = None
    is_introduced: bool = False
    """Whether its present process knows its neighbours, so that new ones are to be introduced."""
    has_left: bool = False
    """Whether it is asked to end: nothing is bound to it any more."""
    work: asyncio.Task[None] | None = None
    """What brings it back."""
    reason: str | None = None
    """Why it is not serving."""

    @property
    def who(self) -> Incarnation:
        """Its present process, by name."""
        return Incarnation(
            stage=self.stage.name, replica=self.where.replica, number=self.num_restarts
        )

    @property
    def running(self) -> Process | None:
        """Its process, when it has one that lives."""
        return self.process if self.process is not None and self.process.alive else None

    @property
    def health(self) -> ReplicaHealth:
        """How it is."""
        process = self.running
        return ReplicaHealth(
            replica=self.where.replica,
            state=self.state,
            pid=None if process is None else process.pid,
            num_restarts=self.num_restarts,
            step_s=0.0 if process is None else process.pulse.step_s,
            num_missed=0 if process is None else process.pulse.missed,
            values={} if process is None else process.values,
            reason=self.reason,
        )
