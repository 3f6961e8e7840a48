"""Replicas that join and leave while requests run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from stagemesh.errors import ClosedError, DiagnosticError, StageFailedError, StartupError
from stagemesh.plan.setup import MpsPlan, NumaPlan, SharePlan, StageSetup
from stagemesh.plan.values import MemoryPlan, Plan, ValuePlan
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.outputs import StageState
from stagemesh.runtime.scaling import scaled
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.axis_plans import axis_plan
from tests.runtime.started import Started, Watch, wait_for_exit

PLAN = fake_plan(three_stages())
STALL: Mapping[str, Mapping[str, object]] = {"talker": {"fail_at": "stall", "fail_step": 1}}


@pytest.mark.slow
def test_replicas_join_and_leave_under_load() -> None:
    """A request that runs meanwhile has its bytes; all replicas are used, and those that left end.

    The last ones leave: they take nothing new, finish what they have, and are gone.
    """
    with Started(PLAN) as started:

        async def run() -> None:
            long = {"thinker": {"num_outputs": 40, "delay_steps": 50}}
            through = asyncio.ensure_future(started.omni.run("a", sampling_params=long))
            plan = await started.omni.scale("talker", 3)
            assert len(plan.stages[1].replicas) == len(started.omni.plan.stages[1].replicas) == 3
            served = {(await started.omni.run("hi")).report[1].replicas for _ in range(3)}
            assert served == {(0,), (1,), (2,)}
            pids = [started.pid(1, replica) for replica in (1, 2)]
            last = asyncio.ensure_future(started.omni.run("b", sampling_params=long))
            more = asyncio.ensure_future(started.omni.run("c", sampling_params=long))
            await asyncio.sleep(0)
            await started.omni.scale("talker", 1)
            for pid in pids:
                await asyncio.to_thread(wait_for_exit, pid)
            for name, task in (("a", through), ("b", last), ("c", more)):
                assert (await task).text == "".join(f"{name}#{number}" for number in range(40))
            assert (await started.omni.run("hi")).report[1].replicas == (0,)
            assert len(started.omni.pids) == 3

        started.call(run())


@pytest.mark.slow
def test_who_leaves_has_a_deadline_for_what_runs() -> None:
    """What is not done by then is cancelled with an error that names the replica."""
    with Started(PLAN) as started:

        async def run() -> None:
            await started.omni.scale("talker", 2)
            watch = Watch()
            runs = [
                asyncio.ensure_future(
                    started.omni.run("hi", sampling_params=STALL, on_progress=watch)
                )
                for _ in range(2)
            ]
            await watch.until("talker", StageState.RUNNING)
            await started.omni.scale("talker", 1, drain_s=0)
            done, left = await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
            (error,) = (task.exception() for task in done)
            assert isinstance(error, StageFailedError)
            assert str(error) == "stage `talker` replica `1` left before the request was done"
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            assert (await started.omni.run("hi")).text == "hi#0hi#1hi#2"

        started.call(run())


@pytest.mark.slow
def test_a_new_replica_that_does_not_come_up_changes_nothing() -> None:
    """Nor does a number that cannot be; the error tells which stage."""
    with Started(PLAN) as started:

        async def run() -> None:
            pids = started.omni.pids
            assert started.omni._supervisor is not None
            wide = scaled(PLAN, "talker", 2)
            broken = replace(wide.stages[1], engine_args={"fail_at": "load"})
            stages = (wide.stages[0], broken, wide.stages[2])
            with pytest.raises(StartupError, match="`talker` replica `1` failed") as caught:
                await started.omni._supervisor.scale(replace(wide, stages=stages), 1.0)
            assert caught.value.stage == "talker"
            with pytest.raises(DiagnosticError, match="RT040"):
                await started.omni.scale("talker", 0)
            assert started.omni.pids == pids
            assert (await started.omni.run("hi")).text == "hi#0hi#1hi#2"
            await started.omni.scale("talker", 2)
            assert len(started.omni.pids) == 4

        started.call(run())


def test_a_system_that_does_not_run_is_not_scaled() -> None:
    """Before its start and after its end."""
    omni = AsyncOmni(PLAN)
    with pytest.raises(ClosedError, match="not started"):
        asyncio.run(omni.scale("talker", 2))
    asyncio.run(omni.close())
    with pytest.raises(ClosedError, match="is closed"):
        asyncio.run(omni.scale("talker", 2))


# --- the plan -------------------------------------------------------------------------------------


def with_talker(plan: Plan = PLAN, **changes: Any) -> Plan:  # noqa: ANN401  fields of a stage
    """A plan with another talker."""
    talker = replace(plan.stages[1], **changes)
    return replace(plan, stages=(plan.stages[0], talker, plan.stages[2]))


def devices(plan: Plan) -> list[tuple[int, ...]]:
    """Where the talkers lie."""
    return [tuple(rank.device for rank in each.ranks) for each in plan.stages[1].replicas]


def test_new_replicas_take_free_devices_and_the_others_stay() -> None:
    """Numbers go on, coordinates are those of the others, and the axis says how many there are."""
    axis = axis_plan("stage_replica", 1, "multiplies_replicas")
    plan = scaled(with_talker(axes=(axis,)), "talker", 3)
    assert devices(plan) == [(0,), (1,), (2,)]
    assert [each.index for each in plan.stages[1].replicas] == [0, 1, 2]
    assert plan.stages[1].axes[0].size == 3
    assert (plan.stages[0], plan.stages[2]) == (PLAN.stages[0], PLAN.stages[2])
    again = scaled(plan, "talker", 1)
    assert devices(again) == [(0,)]
    assert again.stages[1].axes[0].size == 1


def test_new_replicas_share_devices_where_memory_leaves_room() -> None:
    """And are refused where it does not, with the planner's own words."""
    memory = MemoryPlan(weights=3, cache=0, workspace=0)
    narrow = replace(PLAN, devices=replace(PLAN.devices, count=2, memory_bytes=7))
    plan = with_talker(narrow, memory=memory)
    assert devices(scaled(plan, "talker", 4)) == [(0,), (1,), (1,), (0,)]
    with pytest.raises(DiagnosticError, match="PL015"):
        scaled(plan, "talker", 5)


@pytest.mark.parametrize(
    ("changes", "num_replicas", "told"),
    [
        ({}, 0, "RT040"),
        ({}, True, "RT040"),
        ({}, 10**9, "RT040"),
        ({"setup": StageSetup(numa=NumaPlan(binds="engine", replicas=((),)))}, 2, "RT041"),
        (
            {"setup": StageSetup(mps=MpsPlan(off_because=None, pipe_directories=(None,)))},
            2,
            "RT041",
        ),
        ({"setup": StageSetup(share=SharePlan(share=0.6, memory_bytes=None))}, 9, "PL015"),
        (
            {"values": {"devices": ValuePlan(value="0,1", layer="deploy", origin="deploy.yaml")}},
            3,
            "PL010",
        ),
    ],
)
def test_what_cannot_be_is_a_diagnostic(
    changes: dict[str, Any], num_replicas: object, told: str
) -> None:
    """A number that is none, replicas that are tied to something, devices that are bound."""
    with pytest.raises(DiagnosticError, match=told):
        scaled(with_talker(PLAN, **changes), "talker", num_replicas)


def test_devices_that_ship_with_the_model_do_not_bind() -> None:
    """More replicas than they were for are placed as if nobody had listed any."""
    own = ValuePlan(value="0", layer="deploy", origin="toy.yaml", is_default=True)
    assert devices(scaled(with_talker(PLAN, values={"devices": own}), "talker", 2)) == [(0,), (1,)]


def test_stages_that_share_processes_are_scaled_together() -> None:
    """On the same devices, with the memory of all of them, and as far as none is bound."""
    memory = MemoryPlan(weights=2, cache=0, workspace=0)
    narrow = replace(PLAN, devices=replace(PLAN.devices, count=2, memory_bytes=9))
    guest = replace(PLAN.stages[2], setup=StageSetup(host=1), memory=memory)
    narrow = replace(narrow, stages=(*PLAN.stages[:2], guest))
    plan = scaled(with_talker(narrow, memory=memory), "vocoder", 4)
    assert devices(plan) == [(0,), (1,), (1,), (0,)]
    assert plan.stages[1].replicas == plan.stages[2].replicas
    assert plan.stages[0] is PLAN.stages[0]
    fewer = scaled(plan, "talker", 2)
    assert [len(each.replicas) for each in fewer.stages] == [1, 2, 2]
    with pytest.raises(DiagnosticError, match="PL015"):
        scaled(plan, "talker", 5)
    listed = {"devices": ValuePlan(value="0,1", layer="deploy", origin="deploy.yaml")}
    bound = replace(narrow, stages=(*narrow.stages[:2], replace(guest, values=listed)))
    assert devices(scaled(with_talker(bound, memory=memory), "talker", 2)) == [(0,), (1,)]
    numa = replace(guest, setup=StageSetup(host=1, numa=NumaPlan(binds="engine", replicas=((),))))
    with pytest.raises(DiagnosticError, match="RT041"):
        scaled(replace(narrow, stages=(*narrow.stages[:2], numa)), "talker", 2)


def test_an_unknown_stage_is_told_with_the_nearest_one() -> None:
    """As for request parameters."""
    with pytest.raises(DiagnosticError, match="no stage `talkre`") as caught:
        scaled(PLAN, "talkre", 2)
    assert "talker" in str(caught.value.diagnostics[0].help)
    bound: dict[str, Any] = {
        "values": {"devices": ValuePlan(value="0,1", layer="deploy", origin="deploy.yaml")}
    }
    assert devices(scaled(with_talker(PLAN, **bound), "talker", 2)) == [(0,), (1,)]
