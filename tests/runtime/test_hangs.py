"""Replicas that hang: they get no requests, then they are ended, and come back."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from stagemesh.errors import StageFailedError
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.runtime import monitor
from stagemesh.runtime.health import ReplicaState
from stagemesh.runtime.inbox import Forget, Inbox
from stagemesh.runtime.messages import Key
from stagemesh.runtime.pulse import Pulse
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.started import Started


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask often, so that silence is found soon."""
    monkeypatch.setattr(monitor, "INTERVAL_S", 0.1)


def hanging(step_timeout: float = 300.0) -> Started:
    """Three stages, two talkers."""
    recovery = RecoveryPlan(restart_delay=0, step_timeout=step_timeout)
    stages = three_stages(talker=(2, "round_robin"))
    return Started(fake_plan([replace(stage, recovery=recovery) for stage in stages]))


def state(started: Started, replica: int) -> ReplicaState:
    """Where a talker stands."""
    return started.omni.health().stages[1].replicas[replica].state


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_stopped_process_is_passed_over_and_used_again_when_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SIGSTOP is silence: no more requests; after SIGCONT it is as good as before."""
    monkeypatch.setattr(monitor, "NUM_DEAD", 10_000)
    with hanging() as started:

        async def run() -> None:
            pid = started.pid(1)
            os.kill(pid, signal.SIGSTOP)
            await started.until(lambda: state(started, 0) is ReplicaState.UNHEALTHY)
            assert {(await started.omni.run("hi")).report[1].replicas for _ in range(3)} == {(1,)}
            os.kill(pid, signal.SIGCONT)
            await started.until_serving()
            assert started.pid(1) == pid
            assert {(await started.omni.run("hi")).report[1].replicas for _ in range(2)} == {
                (0,),
                (1,),
            }

        started.call(run())


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_process_that_stays_silent_is_ended_and_its_requests_with_it() -> None:
    """The error says for how long it was silent."""
    with hanging() as started:

        async def run() -> None:
            pid = started.pid(1)
            stall = {"talker": {"fail_at": "stall"}}
            doomed = [
                asyncio.ensure_future(started.omni.run("hi", sampling_params=stall))
                for _ in range(2)
            ]
            os.kill(pid, signal.SIGSTOP)
            done, left = await asyncio.wait(doomed, return_when=asyncio.FIRST_COMPLETED)
            (error,) = (task.exception() for task in done)
            assert isinstance(error, StageFailedError)
            assert (error.stage, error.replica) == ("talker", 0)
            assert "has not answered for" in str(error)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await started.until_serving()
            assert started.pid(1) != pid

        started.call(run())


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_step_without_end_ends_its_replica() -> None:
    """The process answers, its engine does not come back: first passed over, then ended."""
    with hanging(step_timeout=1.0) as started:

        async def run() -> None:
            hang = {"talker": {"fail_at": "hang"}}
            with pytest.raises(StageFailedError, match="has been in one step for") as caught:
                await started.omni.run("hi", sampling_params=hang)
            assert caught.value.stage == "talker"
            await started.until_serving()
            assert (await started.omni.run("hi")).text == "hi#0hi#1hi#2"

        started.call(run())


def test_an_engine_is_in_a_step_only_while_it_is_away_from_its_inbox() -> None:
    """Loading is none, nor is the sleep of an idle engine."""
    inbox = Inbox()
    assert inbox.away_s == 0
    inbox.put(Forget(key=Key(rid="r", epoch=0)))
    inbox.take(wait=True)
    first = inbox.away_s
    assert 0 < first <= inbox.away_s


def test_silence_is_counted_in_questions() -> None:
    """One question is open at a time; only its own answer ends the silence."""
    pulse = Pulse()
    assert pulse.asked()
    assert [pulse.asked() for _ in range(3)] == [False] * 3
    assert pulse.missed == 3
    pulse.answered(pulse.number - 1, 9.0)
    assert (pulse.missed, pulse.step_s) == (3, 0.0)
    pulse.answered(pulse.number, 2.5)
    assert (pulse.missed, pulse.step_s) == (0, 2.5)
    assert pulse.asked()
