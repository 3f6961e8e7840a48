"""What a request may say about its route, and what a plan says about routing."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from stagemesh.errors import DiagnosticError, OverloadedError
from stagemesh.runtime.hints import RouteHints, check_hints, routing_keys
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.shapes import room_of, shapes_of
from stagemesh.spec.patterns import Policy
from stagemesh.spec.payload import Buffer, Payload
from stagemesh.testing.fake_plan import FakeStage, fake_plan
from tests.runtime.hashed import hashed
from tests.runtime.started import Started

STALL = {"only": {"fail_at": "stall"}}


@pytest.mark.parametrize(
    ("hints", "told"),
    [
        (RouteHints(), None),
        (RouteHints(keys={"session": "a"}, cost=3, follows="r"), None),
        ("alice", "got `str`"),
        (RouteHints(keys=cast("dict[str, str]", "alice")), "`keys` is `str`"),
        (RouteHints(keys=cast("dict[str, str]", {"session": 1})), "more than texts"),
        (RouteHints(keys={"session": "a", "sesion": "a"}), "no stage is routed by `sesion`"),
        (RouteHints(keys={"request_id": "a"}), "no stage is routed by `request_id`"),
        (RouteHints(cost=0), "`cost` is a whole number"),
        (RouteHints(cost=True), "`cost` is a whole number"),
        (RouteHints(follows=cast("str", 1)), "`follows` names a request"),
    ],
)
def test_wrong_hints_are_told_of(hints: object, told: str | None) -> None:
    """Before anything is sent."""
    found = check_hints(hints, hashed(2, key="session"))
    assert len(found) == (told is not None)
    assert all(told is not None and told in one.message for one in found)


def test_an_unknown_key_is_wrong_where_stages_are_routed_by_one() -> None:
    """The help says what there is; a layout without keys serves the same clients."""
    asked = RouteHints(keys={"sesion": "a"})
    (near,) = check_hints(asked, hashed(2, key="session"))
    assert near.help == "did you mean `session`? allowed here: `session`"
    assert check_hints(asked, fake_plan([FakeStage(name="only", final="text", replicas=2)])) == []


def test_a_prompt_can_be_the_key() -> None:
    """Equal prompts have equal keys, whatever the requests are called; a user may say more."""

    def of(shape: tuple[int, ...]) -> Buffer:
        return Buffer(name="x", dtype="uint8", shape=shape, data=memoryview(b"abcd"))

    one = Payload(meta={"text": "hi"}, buffers=(of((4,)),))
    other = Payload(meta={"text": "hi"}, buffers=(of((2, 2)),))
    keys = [routing_keys(name, prompt, RouteHints()) for name, prompt in
            (("a", one), ("b", one), ("c", other))]  # fmt: skip
    assert keys[0]["prompt"] == keys[1]["prompt"] != keys[2]["prompt"]
    assert keys[0].get("request_id") == "a"
    assert keys[0].get("session") is None
    assert sorted(keys[0]) == ["prompt", "request_id"]
    assert len(keys[0]) == 2
    own = routing_keys("a", one, RouteHints(keys={"prompt": "p", "session": "s"}))
    assert (own["prompt"], own["session"]) == ("p", "s")


def test_key_and_bound_come_from_the_plan() -> None:
    """Those of the axis that brings the replicas; without one the defaults hold."""
    (shape,) = shapes_of(hashed(2, key="session", load_bound=2.0))
    assert (shape.key, shape.routing.load_bound, shape.routing.policy) == (
        "session", 2.0, Policy.HASH,
    )  # fmt: skip
    (shape,) = shapes_of(hashed(2))
    assert (shape.key, shape.routing.load_bound) == ("request_id", 1.25)


def test_a_replica_is_sent_twice_what_it_serves() -> None:
    """So it never waits for the next one; without a number of slots it is sent everything."""
    plan = fake_plan([FakeStage(name="a", args={"max_num_seqs": 3}), FakeStage(name="b")])
    assert [room_of(stage) for stage in plan.stages] == [(3, 6), (1, None)]


@pytest.mark.parametrize("limit", [-1, True, "many", 1.5])
def test_a_wrong_queue_limit_is_told_of(limit: object) -> None:
    """Before anything is started."""
    with pytest.raises(DiagnosticError, match="queue_limit"):
        AsyncOmni(hashed(1), queue_limit=cast("int", limit))


@pytest.mark.slow
def test_equal_keys_reach_one_replica() -> None:
    """And different ones reach all."""
    with Started(hashed(3, key="session", load_bound=1.25)) as started:

        async def served(session: str) -> int:
            result = await started.omni.run("hi", route=RouteHints(keys={"session": session}))
            return result.report[0].replicas[0]

        async def run() -> tuple[set[int], set[int]]:
            same = {await served("alice") for _ in range(6)}
            return same, {await served(f"user-{number}") for number in range(24)}

        same, different = started.call(run())
    assert len(same) == 1
    assert different == {0, 1, 2}


@pytest.mark.slow
def test_more_than_fit_are_refused_and_the_rest_is_served() -> None:
    """At most the slots and the queue; who waits begins when there is room."""
    plan = fake_plan([FakeStage(name="only", final="text", args={"max_num_seqs": 1})])

    async def run() -> list[str | None]:
        async with AsyncOmni(plan, queue_limit=3) as omni:
            stalled = asyncio.ensure_future(omni.run("hi", sampling_params=STALL))
            waiting = [asyncio.ensure_future(omni.run(f"q{number}")) for number in range(3)]
            await asyncio.sleep(0)
            with pytest.raises(OverloadedError, match="at most `4` may"):
                await omni.run("one too many")
            stalled.cancel()
            await asyncio.wait([stalled])
            return [(await one).text for one in waiting]

    assert asyncio.run(run()) == ["q0", "q1", "q2"]
