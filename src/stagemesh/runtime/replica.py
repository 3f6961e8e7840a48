"""One replica as the supervisor keeps it, across all processes that it has been and will be."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from stagemesh.plan.setup import RecoveryPlan
from stagemesh.plan.values import StagePlan
from stagemesh.runtime.core.membership import RestartPolicy
from stagemesh.runtime.health import ReplicaHealth, ReplicaState
from stagemesh.runtime.load import Trail
from stagemesh.runtime.process import Incarnation, Process
from stagemesh.spec.frozen import frozen

_LONGEST_DELAY_S: Final = 60.0
"""Most seconds that a restart waits, unless already the first one is to wait for longer."""


@frozen
class ReplicaId:
    """One replica of one stage."""

    stage: int
    """The stage's id."""
    replica: int
    """Number of the replica."""


def policy_of(plan: RecoveryPlan) -> RestartPolicy:
    """The restart policy that a plan asks for."""
    return RestartPolicy(
        mode=plan.restart,
        most=plan.max_restarts,
        window_s=plan.restart_window,
        first_delay_s=plan.restart_delay,
        longest_delay_s=max(_LONGEST_DELAY_S, plan.restart_delay),
    )


@dataclass(eq=False, slots=True, kw_only=True)
class Member:
    """A replica; changes as it lives, dies and comes back."""

    where: ReplicaId
    stage: StagePlan
    state: ReplicaState = ReplicaState.STARTING
    num_restarts: int = 0
    incarnation: int = 0
    """The number of its present process: higher than that of any before it in its place."""
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
    def is_guest(self) -> bool:
        """Whether it runs in the process of another."""
        return self.stage.setup.host is not None

    @property
    def place(self) -> ReplicaId:
        """The replica whose process this one is in, which may be itself."""
        host = self.stage.setup.host
        return self.where if host is None else ReplicaId(stage=host, replica=self.where.replica)

    @property
    def who(self) -> Incarnation:
        """Its present process, by name."""
        return Incarnation(
            stage=self.stage.name, replica=self.where.replica, number=self.incarnation
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
            trail=Trail() if process is None else process.pulse.trail,
            values={} if process is None else process.values,
            reason=self.reason,
        )
