"""Stages that share processes: fewer processes, the same outputs, one life."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from typing import Final

import pytest

from stagemesh.errors import StageFailedError, StartupError
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.plan.values import Plan
from stagemesh.runtime.health import ReplicaState
from stagemesh.runtime.outputs import OmniResult, StageState
from stagemesh.runtime.params import SamplingParams
from stagemesh.testing.fake_plan import FakeStage, fake_plan, three_stages
from tests.runtime.leaks import descriptors, host, wait_until_as
from tests.runtime.started import Started, Watch

pytestmark = pytest.mark.slow

AT_ONCE: Final = RecoveryPlan(restart_delay=0, max_restarts=1000)
HOSTS: Final = {
    "the last two": (None, None, 1),
    "the first two": (None, 0, None),
    "the host is behind its guest": (2, None, None),
    "all in one": (1, None, 1),
}
"""In whose processes each stage runs."""


def stages(
    hosts: tuple[int | None, ...] = (None, None, 1), replicas: int = 1
) -> tuple[FakeStage, ...]:
    """Three stages; whoever shares a process has as many replicas as its host."""
    names = ("thinker", "talker", "vocoder")
    found = three_stages(**dict.fromkeys(names, (replicas, "round_robin")))
    return tuple(
        replace(stage, host=where, recovery=AT_ONCE)
        for stage, where in zip(found, hosts, strict=True)
    )


def plan_of(
    hosts: tuple[int | None, ...] = (None, None, 1), replicas: int = 1, *, chunked: bool = True
) -> Plan:
    """Their plan."""
    return fake_plan(stages(hosts, replicas), chunked=chunked)


def said(result: OmniResult) -> list[tuple[str, bytes]]:
    """Everything that came for a request, by stage."""
    return [
        (output.stage, b"".join(bytes(buffer.data) for buffer in output.payload.buffers))
        for output in sorted(result.outputs, key=lambda output: output.stage)
    ]


@pytest.mark.parametrize("chunked", [True, False], ids=["by chunk", "whole"])
@pytest.mark.parametrize("hosts", HOSTS.values(), ids=HOSTS)
def test_outputs_are_those_of_separate_processes(
    hosts: tuple[int | None, ...], *, chunked: bool
) -> None:
    """Byte by byte, with one process for each group, and nothing is left behind."""
    with Started(plan_of((None, None, None), chunked=chunked)) as apart:
        expected = said(apart.run("a"))
    assert len(expected) >= 2
    before = host()
    with Started(plan_of(hosts, chunked=chunked)) as started:
        assert len(set(started.omni.pids.values())) == hosts.count(None)
        assert said(started.run("a")) == expected
        results = started.many([f"q{number}" for number in range(8)])
        assert [result.text for result in results] == [
            f"q{number}#0q{number}#1q{number}#2" for number in range(8)
        ]
        assert started.in_flight() == {0: (0,), 1: (0,), 2: (0,)}
    wait_until_as(before)


def test_requests_stay_in_one_process() -> None:
    """Whatever replica the host has of a request, the guest has the same."""
    with Started(plan_of(replicas=3)) as started:
        assert len(set(started.omni.pids.values())) == 6
        results = started.many(["hi"] * 24)
        routes = [tuple(part.replicas[0] for part in result.report) for result in results]
        assert {talker for _, talker, _ in routes} == {0, 1, 2}
        assert all(talker == vocoder for _, talker, vocoder in routes)


@pytest.mark.parametrize("killed", ["talker", "vocoder"])
def test_a_dead_process_is_the_death_of_all_in_it(killed: str) -> None:
    """Requests of that process fail with the stage they were in; others go on; all comes back."""
    with Started(plan_of(replicas=2)) as started:

        async def run() -> None:
            watch = Watch()
            stall = {killed: {"fail_at": "stall", "fail_step": 1}}
            doomed = asyncio.ensure_future(
                started.omni.run("doomed", sampling_params=stall, on_progress=watch)
            )
            await watch.until(killed, StageState.RUNNING)
            long = {"thinker": {"delay_steps": 500}}
            other = asyncio.ensure_future(started.omni.run("other", sampling_params=long))
            await asyncio.sleep(0)
            os.kill(started.pid(1, 0), signal.SIGKILL)
            (error,) = await asyncio.gather(doomed, return_exceptions=True)
            assert isinstance(error, StageFailedError)
            assert "was killed by SIGKILL" in str(error)
            assert error.replica == 0
            assert (await other).text == "other#0other#1other#2"
            served = [(await started.omni.run("hi")).report for _ in range(4)]
            assert {(report[1].replicas, report[2].replicas) for report in served} <= {
                ((1,), (1,)),
                ((0,), (0,)),
            }
            await started.until_serving()
            assert started.pid(1, 0) == started.pid(2, 0)
            assert [
                replica.num_restarts
                for stage in started.omni.health().stages[1:]
                for replica in stage.replicas
            ] == [1, 0, 1, 0]
            served = [(await started.omni.run("hi")).report for _ in range(4)]
            assert {report[2].replicas for report in served} == {(0,), (1,)}

        started.call(run())


@pytest.mark.parametrize("failing", [1, 2])
def test_what_ends_one_stage_ends_the_others_in_its_process(failing: int) -> None:
    """A start that fails says which of them it was."""
    found = list(stages())
    found[failing] = replace(found[failing], args={**found[failing].args, "fail_at": "load"})
    with pytest.raises(StartupError) as caught, Started(fake_plan(found)):
        pass
    told = str(caught.value)
    at_fault = f"stage `{found[failing].name}` replica `0`"
    assert f"{at_fault} failed: RuntimeError" in told or f"{at_fault}, which failed: Run" in told


def test_a_fault_in_one_stage_is_told_of_by_the_other() -> None:
    """An engine beyond repair ends the process; health says of both stages whose fault it was."""
    never = RecoveryPlan(restart="never")
    plan = fake_plan([replace(stage, recovery=never) for stage in stages()])
    with Started(plan) as started:

        async def run() -> None:
            greedy: SamplingParams = {"vocoder": {"fail_at": "memory"}}
            for _ in range(2):  # a second step without memory in a row is one too many
                with pytest.raises(StageFailedError):
                    await started.omni.run("hi", sampling_params=greedy)
            await started.until(
                lambda: started.omni.health().stages[2].replicas[0].state is ReplicaState.STOPPED
            )

        started.call(run())
        _, talker, vocoder = started.omni.health().stages
        assert talker.replicas[0].state is ReplicaState.STOPPED
        assert talker.replicas[0].reason is not None
        assert vocoder.replicas[0].reason is not None
        fault = "failed: RuntimeError: out of memory in two steps in a row"
        assert vocoder.replicas[0].reason.startswith(f"stage `vocoder` replica `0` {fault}")
        with_whom = "stage `talker` replica `0` ended with stage `vocoder` replica `0`, which"
        assert talker.replicas[0].reason.startswith(f"{with_whom} {fault}")


@pytest.mark.nightly
def test_a_hang_of_one_is_the_hang_of_all_in_its_process() -> None:
    """A step that takes too long ends the process, and both stages come back."""
    soon = replace(AT_ONCE, step_timeout=1.0)
    plan = fake_plan([replace(stage, recovery=soon) for stage in stages()])
    with Started(plan) as started:

        async def run() -> None:
            hang: SamplingParams = {"vocoder": {"fail_at": "hang"}}
            (error,) = await asyncio.gather(
                started.omni.run("hi", sampling_params=hang), return_exceptions=True
            )
            assert isinstance(error, StageFailedError)
            assert "stage `vocoder` replica `0` failed: its engine has been in one step" in str(
                error
            )
            await started.until_serving()
            assert (await started.omni.run("hi")).text == "hi#0hi#1hi#2"
            assert [stage.replicas[0].num_restarts for stage in started.omni.health().stages] == [
                0,
                1,
                1,
            ]

        started.call(run())


def test_all_stages_of_a_process_join_and_leave_together() -> None:
    """Scaling one scales the others, under load, and what leaves ends."""
    with Started(plan_of()) as started:

        async def run() -> None:
            plan = await started.omni.scale("vocoder", 3)
            assert [len(stage.replicas) for stage in plan.stages] == [1, 3, 3]
            assert len(set(started.omni.pids.values())) == 4
            results = await asyncio.gather(*(started.omni.run("hi") for _ in range(12)))
            assert {result.report[2].replicas for result in results} == {(0,), (1,), (2,)}
            long = {"thinker": {"num_outputs": 20, "delay_steps": 20}}
            through = [
                asyncio.ensure_future(started.omni.run("a", sampling_params=long)) for _ in range(3)
            ]
            await asyncio.sleep(0)
            await started.omni.scale("talker", 1)
            for task in through:
                assert (await task).text == "".join(f"a#{number}" for number in range(20))
            assert len(set(started.omni.pids.values())) == 2
            assert (await started.omni.run("hi")).text == "hi#0hi#1hi#2"

        started.call(run())


def test_a_user_who_does_not_read_stops_the_stages_of_a_process() -> None:
    """The window between them holds: the first stage puts out a part, and others go on."""
    with Started(plan_of(), unread_bytes=100_000) as started:

        async def run() -> None:
            many: SamplingParams = {"thinker": {"num_outputs": 400, "output_bytes": 40_000}}
            watch = Watch()
            outputs = started.omni.generate("slow", sampling_params=many, on_progress=watch)
            await anext(outputs)
            for _ in range(3):
                assert (await started.omni.run("hi")).text == "hi#0hi#1hi#2"
            made = max(each.units.get("outputs", 0) for each in watch.heard if each.units)
            assert made < 400
            rest = [output async for output in outputs]
            assert sum(output.stage == "thinker" for output in rest) >= 398

        started.call(run())


def test_requests_that_are_left_leave_nothing() -> None:
    """After many of them all slots and credits are back, and no descriptor is open."""
    with Started(plan_of()) as started:

        async def leave(number: int) -> None:
            outputs = started.omni.generate(f"q{number}")
            for _ in range(number % 4):
                await anext(outputs)
            await outputs.aclose()

        async def run() -> None:
            await asyncio.gather(*map(leave, range(40)))

        started.run()
        before = descriptors(started)
        started.call(run())
        started.settle()
        assert started.run().text == "hi#0hi#1hi#2"
        assert descriptors(started) == before
