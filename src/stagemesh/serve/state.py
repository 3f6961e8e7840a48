"""Where a server stands: its phase, the requests that it works on, and whether it can serve."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum

from stagemesh.errors import ClosedError
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.spec.frozen import frozen


class Phase(Enum):
    """The life of a server."""

    STARTING = "starting"
    """Stages are loading."""
    SERVING = "serving"
    """Requests are taken."""
    DRAINING = "draining"
    """What runs is finished, nothing more is taken."""


@frozen
class StageHealth:
    """One stage as the server sees it."""

    stage: str
    """Its name."""
    replicas: int
    """Replicas that the plan has."""
    alive: int
    """Replicas that run."""


@frozen
class Health:
    """Whether requests can be served, and why not."""

    phase: Phase
    """The phase of the server."""
    stages: tuple[StageHealth, ...]
    """All stages in the order of the plan."""

    @property
    def can_serve(self) -> bool:
        """Whether a request that comes now has somewhere to go."""
        return self.phase is Phase.SERVING and all(stage.alive for stage in self.stages)

    def form(self) -> Mapping[str, object]:
        """Return it as JSON."""
        state = self.phase.value
        if self.phase is Phase.SERVING and not self.can_serve:
            state = "unhealthy"
        return {
            "state": state,
            "stages": [
                {"stage": one.stage, "replicas": one.replicas, "alive": one.alive}
                for one in self.stages
            ],
        }


class Serving:
    """The state of one server; all calls come from its loop."""

    def __init__(self, omni: AsyncOmni) -> None:
        """Begin in the phase of starting."""
        self.phase = Phase.STARTING
        self._omni = omni
        self._active = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def active(self) -> int:
        """Requests that are worked on."""
        return self._active

    def health(self) -> Health:
        """Look at every stage."""
        alive = [where.stage for where in self._omni.pids]
        stages = tuple(
            StageHealth(
                stage=stage.name,
                replicas=len(stage.replicas),
                alive=alive.count(stage.stage_id),
            )
            for stage in self._omni.plan.stages
        )
        return Health(phase=self.phase, stages=stages)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request while it runs; raises `ClosedError` when none is taken now."""
        if self.phase is not Phase.SERVING:
            raise ClosedError(f"the server is {self.phase.value}")
        self._active += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._active -= 1
            if self._active == 0:
                self._idle.set()

    async def drained(self, within_s: float) -> bool:
        """Wait until nothing runs any more; whether that was so in time."""
        try:
            await asyncio.wait_for(self._idle.wait(), within_s)
        except TimeoutError:
            return False
        return True

    def state_form(self) -> Mapping[str, object]:
        """Everything that is known of the server, as JSON."""
        plan = self._omni.plan
        pids = self._omni.pids
        return {
            **self.health().form(),
            "pipeline": plan.pipeline,
            "requests": self._active,
            "replicas": [
                {
                    "stage": plan.stage(where.stage).name,
                    "replica": where.replica,
                    "pid": pid,
                }
                for where, pid in pids.items()
            ],
        }
