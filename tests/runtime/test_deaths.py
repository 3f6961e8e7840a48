"""Processes that die: who hears of it, and what is left."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from stagemesh.errors import StageFailedError
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.plan.values import Plan
from stagemesh.runtime.outputs import OmniResult, StageState
from stagemesh.testing.connector_conformance import open_fds
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.started import Started, Watch, wait_for_exit

pytestmark = pytest.mark.slow

NAMES = ("thinker", "talker", "vocoder")
TWO = dict.fromkeys(NAMES, (2, "round_robin"))
NEVER = RecoveryPlan(restart="never")


def staying_down(**changes: tuple[int, str]) -> Plan:
    """Three stages whose replicas are not started again."""
    return fake_plan([replace(stage, recovery=NEVER) for stage in three_stages(**changes)])


@pytest.mark.parametrize("stage", range(3), ids=NAMES)
def test_a_death_fails_its_request_and_no_other(stage: int) -> None:
    """SIGKILL in the middle of a request names stage, replica and signal; the other goes on."""
    with Started(staying_down(**TWO)) as started:

        async def run() -> tuple[object, OmniResult, OmniResult]:
            watch = Watch()
            stall = {NAMES[stage]: {"fail_at": "stall", "fail_step": 1}}
            doomed = asyncio.ensure_future(
                started.omni.run("doomed", sampling_params=stall, on_progress=watch)
            )
            await watch.until(NAMES[stage], StageState.RUNNING)
            long = {"thinker": {"delay_steps": 2000}}
            other = asyncio.ensure_future(started.omni.run("other", sampling_params=long))
            os.kill(started.pid(stage, 0), signal.SIGKILL)
            (error,) = await asyncio.gather(doomed, return_exceptions=True)
            return error, await other, await started.omni.run("later")

        error, other, later = started.call(run())
        assert isinstance(error, StageFailedError)
        assert str(error).startswith(f"stage `{NAMES[stage]}` replica `0` was killed by SIGKILL")
        assert (error.stage, error.replica) == (NAMES[stage], 0)
        assert other.text == "other#0other#1other#2"
        assert later.report[stage].replicas == (1,)
        assert len(started.omni.pids) == 5


def test_without_a_replica_left_requests_fail_at_once() -> None:
    """When the last replica of a stage has died, idle as it was, the error names the stage."""
    before, shared = open_fds(), set(Path("/dev/shm").iterdir())  # noqa: S108  it is looked at
    with Started(staying_down()) as started:
        pids = list(started.omni.pids.values())
        victim = started.pid(1)
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(StageFailedError, match="stage `talker`"):
            started.run()
        wait_for_exit(victim)
        with pytest.raises(StageFailedError, match="stage `talker` has no replica left") as caught:
            started.run()
        assert caught.value.stage == "talker"
        assert caught.value.retryable
    for pid in pids:
        wait_for_exit(pid)
    assert open_fds() == before
    assert set(Path("/dev/shm").iterdir()) <= shared  # noqa: S108  it is looked at


def test_a_process_that_exits_by_itself_is_told_with_its_code() -> None:
    """An engine that ends its process fails the request with the exit code."""
    with (
        Started(fake_plan(three_stages())) as started,
        pytest.raises(StageFailedError, match="`vocoder` replica `0` exited with code 3"),
    ):
        started.run(params={"vocoder": {"fail_at": "exit", "fail_step": 1}})


def test_a_stopped_consumer_makes_the_producer_wait() -> None:
    """More than the arena holds is kept back while the consumer sleeps, and nothing is lost."""
    with Started(fake_plan(three_stages(), arena_bytes=128 * 1024)) as started:
        talker = started.pid(1)

        async def run() -> OmniResult:
            os.kill(talker, signal.SIGSTOP)
            outputs = started.omni.generate(
                "hi", sampling_params={"thinker": {"num_outputs": 40, "output_bytes": 20_000}}
            )
            try:
                first = await anext(outputs)
            finally:
                os.kill(talker, signal.SIGCONT)
            rest = [output async for output in outputs]
            said = [output for output in (first, *rest) if output.stage == "vocoder"]
            assert [output.payload.meta["text"] for output in said] == [
                f"hi#{number}" for number in range(40)
            ]
            assert [bytes(output.payload.buffers[0].data[:1])[0] for output in said] == [*range(40)]
            return await started.omni.run("after")

        assert started.call(run()).text == "after#0after#1after#2"


def test_what_a_stage_has_started_dies_with_it(tmp_path: Path) -> None:
    """A process that a stage has started is gone when the stage has died."""
    record = tmp_path / "pid"
    stages = [replace(stage, env={"TEST_RECORD": str(record)}) for stage in three_stages()[:2]]
    bridge = "tests.runtime.plugins:spawning_bridge"
    with Started(fake_plan(stages, bridge=bridge)) as started:
        started.run()
        grandchild = int(record.read_text(encoding="ascii"))
        os.kill(started.pid(0), signal.SIGKILL)
        wait_for_exit(grandchild)
