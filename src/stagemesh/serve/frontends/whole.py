"""What several frontends are together: state, health and metrics as of one server. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from stagemesh.plan.values import Plan
from stagemesh.runtime.health import ReplicaHealth, ReplicaState, SystemState
from stagemesh.runtime.load import Trail
from stagemesh.serve.forms import Json
from stagemesh.serve.frontends.words import Seen
from stagemesh.serve.metric_table import OF_SEVERAL
from stagemesh.serve.metrics import Sample, page_of
from stagemesh.serve.state import replica_form
from stagemesh.spec.frozen import frozen

_SERVING: Final = SystemState.SERVING.value


@frozen
class Sight:
    """What is known of one frontend."""

    frontend: int
    """Its number."""
    state: ReplicaState
    """Where its process stands."""
    pid: int | None
    """Its process, which leads a group of its own; `None` where there is none."""
    num_restarts: int
    """How often it was started again."""
    reason: str | None
    """Why it is not serving, when it is not."""
    share: Plan
    """What it runs."""
    seen: Seen | None = None
    """What it says of itself; `None` where it says nothing."""

    @property
    def told(self) -> str:
        """How it is, in its own word where it has one."""
        return self.state.value if self.seen is None else str(self.seen.state["state"])


def state_of(sights: Sequence[Sight], *, is_draining: bool, has_served: bool) -> SystemState:
    """How the server is as a whole: it serves as long as one of its frontends does."""
    if is_draining:
        return SystemState.DRAINING
    if not has_served:
        return SystemState.STARTING
    serves = any(sight.told == _SERVING for sight in sights)
    return SystemState.SERVING if serves else SystemState.UNHEALTHY


def whole_state(plan: Plan, state: SystemState, sights: Sequence[Sight]) -> Json:
    """Everything that is known, as of a server with one frontend, and the frontends."""
    found: dict[str, dict[int, Json]] = {stage.name: {} for stage in plan.stages}
    for sight in sights:
        for stage, number, form in _replicas(sight):
            found[stage][number] = {**form, "frontend": sight.frontend}
    return {
        "pipeline": plan.pipeline,
        "state": state.value,
        "frontends": [_frontend_form(sight) for sight in sights],
        "stages": [
            {"stage": name, "replicas": [replicas[number] for number in sorted(replicas)]}
            for name, replicas in found.items()
        ],
    }


def whole_health(state: Mapping[str, Any]) -> Json:
    """What of `whole_state` is for balancers: no process is named."""
    return {
        "state": state["state"],
        "frontends": [frontend["state"] for frontend in state["frontends"]],
        "stages": [
            {
                "stage": stage["stage"],
                "is_healthy": any(each["state"] == _SERVING for each in stage["replicas"]),
                "replicas": [each["state"] for each in stage["replicas"]],
            }
            for stage in state["stages"]
        ],
    }


def whole_metrics(sights: Sequence[Sight], accept: str) -> tuple[bytes, str]:
    """Every series of every frontend under its number.

    They are not added up: a frontend that is started again counts from 0, which a sum would show as
    a leap of all of them.
    """
    return page_of(OF_SEVERAL, _samples(sights), accept)


def _samples(sights: Sequence[Sight]) -> Iterator[Sample]:
    for sight in sights:
        labels = (str(sight.frontend),)
        yield "frontend_up", labels, float(sight.told == _SERVING)
        yield "frontend_restarts", labels, sight.num_restarts
        for reading in () if sight.seen is None else sight.seen.readings:
            yield reading.name, (*labels, *reading.labels), reading.value


def _frontend_form(sight: Sight) -> Json:
    return {
        "frontend": sight.frontend,
        "state": sight.told,
        "pid": sight.pid,
        "num_restarts": sight.num_restarts,
        "reason": None if sight.told == _SERVING else sight.reason,
    }


def _replicas(sight: Sight) -> Iterator[tuple[str, int, Json]]:
    """Its replicas as it says, and those of which it says nothing as its process is."""
    for stage in sight.share.stages:
        for replica in stage.replicas:
            yield stage.name, replica.index, _unseen(sight, replica.index)
    said: Mapping[str, Any] = {"stages": ()} if sight.seen is None else sight.seen.state
    for told in said["stages"]:
        for form in told["replicas"]:
            yield told["stage"], form["replica"], form


def _unseen(sight: Sight, replica: int) -> Json:
    state = ReplicaState.STARTING if sight.seen is not None else sight.state
    health = ReplicaHealth(
        replica=replica,
        state=state,
        pid=None,
        num_restarts=0,
        step_s=0.0,
        num_missed=0,
        trail=Trail(),
        values={},
        reason=sight.reason,
    )
    return replica_form(health, None)
