"""What several frontends are together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stagemesh.plan.values import Plan
from stagemesh.runtime.health import ReplicaState, SystemState
from stagemesh.runtime.load import Times
from stagemesh.serve.frontends.share import share_of
from stagemesh.serve.frontends.whole import (
    Sight,
    state_of,
    whole_health,
    whole_metrics,
    whole_state,
)
from stagemesh.serve.frontends.words import Reading, Seen
from tests.serve.frontends.test_share import planned

PLAN: Plan = planned([(0, 0), (1, 1)], 4, 2, 2)


def sight(frontend: int, state: ReplicaState, told: str | None = None, *readings: Reading) -> Sight:
    """One frontend, whose replicas are as it says itself."""
    share = share_of(PLAN, frontend)
    replicas = [
        {
            "stage": stage.name,
            "replicas": [{"replica": one.index, "state": told, "pid": 7} for one in stage.replicas],
        }
        for stage in share.stages
    ]
    said: dict[str, object] = {"pipeline": "fakes", "state": told, "stages": replicas}
    return Sight(
        frontend=frontend,
        state=state,
        pid=None if told is None else 40 + frontend,
        num_restarts=frontend,
        reason=None if told == "serving" else "was killed by SIGKILL",
        share=share,
        seen=None if told is None else Seen(number=0, state=said, readings=readings),
    )


UP = ReplicaState.SERVING
GONE = ReplicaState.RESTARTING


@pytest.mark.parametrize(
    ("states", "flags", "expected"),
    [
        ([(UP, "serving"), (UP, "serving")], (False, True), SystemState.SERVING),
        ([(UP, "serving"), (GONE, None)], (False, True), SystemState.SERVING),
        ([(UP, "unhealthy"), (UP, "serving")], (False, True), SystemState.SERVING),
        ([(UP, "unhealthy"), (GONE, None)], (False, True), SystemState.UNHEALTHY),
        ([(UP, "serving"), (UP, "starting")], (False, False), SystemState.STARTING),
        ([(UP, "draining"), (UP, "draining")], (True, True), SystemState.DRAINING),
        ([(UP, "starting"), (UP, "starting")], (True, False), SystemState.DRAINING),
    ],
)
def test_a_server_serves_as_long_as_one_of_its_frontends_does(
    states: list[tuple[ReplicaState, str | None]],
    flags: tuple[bool, bool],
    expected: SystemState,
) -> None:
    """Not before all of them have, and not once it is told to stop."""
    sights = [sight(number, state, told) for number, (state, told) in enumerate(states)]
    is_draining, has_served = flags
    assert state_of(sights, is_draining=is_draining, has_served=has_served) is expected


def test_every_replica_of_the_plan_is_told_of_once_under_its_number() -> None:
    """Those of a frontend that is gone are as it is."""
    sights = [sight(0, UP, "serving"), sight(1, GONE)]
    state: Mapping[str, Any] = whole_state(PLAN, SystemState.SERVING, sights)
    assert (state["pipeline"], state["state"]) == ("fakes", "serving")
    assert state["frontends"] == [
        {"frontend": 0, "state": "serving", "pid": 40, "num_restarts": 0, "reason": None},
        {
            "frontend": 1,
            "state": "restarting",
            "pid": None,
            "num_restarts": 1,
            "reason": "was killed by SIGKILL",
        },
    ]
    for stage in state["stages"]:
        assert [
            (each["replica"], each["frontend"], each["state"], each["pid"])
            for each in stage["replicas"]
        ] == [(0, 0, "serving", 7), (1, 1, "restarting", None)]
    assert whole_health(state) == {
        "state": "serving",
        "frontends": ["serving", "restarting"],
        "stages": [
            {"stage": name, "is_healthy": True, "replicas": ["serving", "restarting"]}
            for name in ("stage0", "stage1")
        ],
    }


def test_a_frontend_that_has_no_replicas_yet_starts_them() -> None:
    """Its system tells of them only once it has begun to start them."""
    early = sight(0, ReplicaState.STARTING, "starting")
    assert early.seen is not None
    early.seen.state["stages"] = []
    state: Mapping[str, Any] = whole_state(PLAN, SystemState.STARTING, [early])
    assert [stage["replicas"][0]["state"] for stage in state["stages"]] == ["starting", "starting"]


def test_metrics_carry_the_number_of_their_frontend_and_are_not_added_up() -> None:
    """Counters, gauges and times alike; one that is gone is down."""
    times = Times(total_s=2.0)
    sights = [
        sight(
            0,
            UP,
            "serving",
            Reading(name="requests_success", labels=(), value=3.0),
            Reading(name="stage_up", labels=("stage0", "0"), value=1.0),
            Reading(name="stage_step_s", labels=("stage0", "0"), value=times),
        ),
        sight(1, UP, "serving", Reading(name="requests_success", labels=(), value=4.0)),
        sight(1, GONE),
    ]
    body, content_type = whole_metrics([sights[0], sights[1]], "")
    assert content_type.startswith("text/plain")
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }
    assert found["stagemesh_requests_success_total", ("frontend", "0")] == 3
    assert found["stagemesh_requests_success_total", ("frontend", "1")] == 4
    at = (("frontend", "0"), ("replica", "0"), ("stage", "stage0"))
    assert found["stagemesh_stage_up", *at] == 1
    assert found["stagemesh_stage_step_s_sum", *at] == 2
    assert found["stagemesh_frontend_restarts_total", ("frontend", "1")] == 1
    down, _ = whole_metrics([sights[2]], "")
    assert b'stagemesh_frontend_up{frontend="1"} 0.0' in down
    assert b"requests_success_total{" not in down
