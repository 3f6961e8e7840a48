"""Replicas that died come back: who notices, who is untouched, and when one is given up."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from stagemesh.errors import StageFailedError
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.plan.values import Plan
from stagemesh.runtime.health import ReplicaHealth, ReplicaState, SystemState
from stagemesh.runtime.outputs import StageState
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.started import Started, Watch, wait_for_exit

pytestmark = pytest.mark.slow

AT_ONCE = RecoveryPlan(restart_delay=0, max_restarts=100)


def recovering(recovery: RecoveryPlan = AT_ONCE, **changes: tuple[int, str]) -> Plan:
    """Three stages that come back like this."""
    return fake_plan([replace(stage, recovery=recovery) for stage in three_stages(**changes)])


def test_a_replica_that_died_is_used_again_and_nobody_else_notices() -> None:
    """The bound request has a typed error, the other one its bytes, and the dead one comes back."""
    with Started(recovering(talker=(2, "round_robin"))) as started:
        whole = started.run("other").outputs

        async def run() -> None:
            watch = Watch()
            stall = {"talker": {"fail_at": "stall", "fail_step": 1}}
            doomed = asyncio.ensure_future(
                started.omni.run("doomed", sampling_params=stall, on_progress=watch)
            )
            news = await watch.until("talker", StageState.RUNNING)
            pids = dict(started.omni.pids)
            other = asyncio.ensure_future(
                started.omni.run(
                    "other", request_id="request-0", sampling_params={"thinker": {"delay_steps": 9}}
                )
            )
            os.kill(started.pid(1, news.replica), signal.SIGKILL)
            (error,) = await asyncio.gather(doomed, return_exceptions=True)
            assert isinstance(error, StageFailedError)
            assert (error.stage, error.replica) == ("talker", news.replica)
            assert "was killed by SIGKILL" in str(error)
            assert not error.retryable, "the thinker had spoken"
            assert by_stage((await other).outputs) == by_stage(whole)
            await started.until_serving()
            served = {(await started.omni.run("hi")).report[1].replicas for _ in range(2)}
            assert served == {(0,), (1,)}
            changed = {where for where, pid in started.omni.pids.items() if pids[where] != pid}
            assert [(where.stage, where.replica) for where in changed] == [(1, news.replica)]
            found = started.omni.health().stages[1].replicas[news.replica]
            assert (found.num_restarts, found.reason) == (1, None)

        started.call(run())


def by_stage(outputs: object) -> dict[str, list[tuple[object, bytes]]]:
    """What each stage said, in its order: how two stages interleave is nobody's promise."""
    found: dict[str, list[tuple[object, bytes]]] = {}
    assert isinstance(outputs, tuple)
    for output in outputs:
        data = b"".join(bytes(buffer.data) for buffer in output.payload.buffers)
        found.setdefault(output.stage, []).append((output.payload.meta, data))
    return found


def test_without_a_replica_requests_fail_at_once_until_it_is_back() -> None:
    """Neighbours that die together find each other again."""
    with Started(recovering(RecoveryPlan(restart_delay=0.2))) as started:

        async def run() -> None:
            assert started.omni.health().state is SystemState.SERVING
            for stage in (0, 1):
                pid = started.pid(stage)
                os.kill(pid, signal.SIGKILL)
                await asyncio.to_thread(wait_for_exit, pid)
            await started.until(lambda: len(started.omni.pids) == 1)
            assert started.omni.health().state is SystemState.UNHEALTHY
            with pytest.raises(StageFailedError, match="has no replica left") as caught:
                await started.omni.run("hi")
            assert caught.value.retryable
            await started.until_serving()
            assert (await started.omni.run("hi")).text == "hi#0hi#1hi#2"

        started.call(run())


@pytest.mark.parametrize("victims", [(1,), (2,), (1, 2)], ids=["fellow", "neighbour", "both"])
def test_a_replica_that_joins_beside_one_just_killed_meets_whoever_comes_back(
    victims: tuple[int, ...],
) -> None:
    """Nobody has noticed the death when the new one is introduced; in the end all reach all.

    The start of the new one and the restart of the dead one run at once.
    """
    with Started(recovering(vocoder=(2, "random"))) as started:

        async def run() -> None:
            for stage in victims:
                os.kill(started.pid(stage), signal.SIGKILL)
            await started.omni.scale("talker", 2)
            await started.until_serving()
            pairs: set[tuple[int, int]] = set()
            every = {(talker, vocoder) for talker in (0, 1) for vocoder in (0, 1)}
            while pairs < every:
                result = await started.omni.run("hi")
                assert result.text == "hi#0hi#1hi#2"
                (talker,), (vocoder,) = (stage.replicas for stage in result.report[1:])
                pairs.add((talker, vocoder))
            restarts = [
                (stage, replica.replica)
                for stage, health in enumerate(started.omni.health().stages)
                for replica in health.replicas
                if replica.num_restarts
            ]
            assert restarts == [(stage, 0) for stage in victims]

        started.call(run())


def test_one_that_dies_too_often_stays_down_until_it_is_asked_for() -> None:
    """After as many restarts as the policy allows; scaling to as many as there are starts it."""
    with Started(recovering(RecoveryPlan(restart_delay=0, max_restarts=1))) as started:

        async def run() -> None:
            os.kill(started.pid(1), signal.SIGKILL)
            await started.until(lambda: talker().num_restarts == 1)
            await started.until_serving()
            os.kill(started.pid(1), signal.SIGKILL)
            await started.until(lambda: talker().state is ReplicaState.STOPPED)
            assert "killed by SIGKILL" in str(talker().reason)
            await started.omni.scale("talker", 1)
            await started.until_serving()
            assert (await started.omni.run("hi")).text == "hi#0hi#1hi#2"

        def talker() -> ReplicaHealth:
            return started.omni.health().stages[1].replicas[0]

        started.call(run())


def test_memory_that_runs_out_twice_in_a_row_restarts_the_replica() -> None:
    """Once fails the requests of that step; a good step in between makes the next one a first."""
    short = {"talker": {"fail_at": "memory"}}
    with Started(recovering()) as started:

        async def run() -> None:
            pid = started.pid(1)
            for _ in range(2):
                with pytest.raises(StageFailedError, match="failed: MemoryError"):
                    await started.omni.run("hi", sampling_params=short)
                assert (await started.omni.run("hi")).text == "hi#0hi#1hi#2"
            with pytest.raises(StageFailedError, match="failed: MemoryError"):
                await started.omni.run("hi", sampling_params=short)
            with pytest.raises(StageFailedError, match="out of memory in two steps in a row"):
                await started.omni.run("hi", sampling_params=short)
            await started.until_serving()
            assert started.pid(1) != pid
            assert (await started.omni.run("hi")).text == "hi#0hi#1hi#2"

        started.call(run())


def test_a_restart_that_fails_is_tried_again_and_then_given_up() -> None:
    """A stage that cannot load any more counts as one that died."""
    with Started(recovering(RecoveryPlan(restart_delay=0, max_restarts=2))) as started:

        async def run() -> None:
            broken = replace(started.omni.plan.stages[1], engine_args={"fail_at": "load"})
            stages = (started.omni.plan.stages[0], broken, started.omni.plan.stages[2])
            assert started.omni._supervisor is not None
            started.omni._supervisor._crew.follow(replace(started.omni.plan, stages=stages))
            os.kill(started.pid(1), signal.SIGKILL)

            def talker_is_down() -> bool:
                found = started.omni.health().stages[1].replicas[0]
                return found.state is ReplicaState.STOPPED and found.num_restarts == 2

            await started.until(talker_is_down)
            assert "the program fails at `load`" in str(
                started.omni.health().stages[1].replicas[0].reason
            )

        started.call(run())
