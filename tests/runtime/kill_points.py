"""The points at which a stage process is killed: how to get there, and what is to be seen then."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from stagemesh.errors import ClosedError, StageFailedError, StartupError
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.plan.values import Plan
from stagemesh.runtime.health import ReplicaHealth, ReplicaState
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.outputs import OmniOutput, StageState
from stagemesh.testing.fake_plan import FakeStage, fake_plan, three_stages
from tests.runtime.started import Started, Watch

NAMES: Final = ("thinker", "talker", "vocoder")
AT_ONCE: Final = RecoveryPlan(restart_delay=0, max_restarts=1000)
ASLEEP_S: Final = 0.1
"""A process that has not wanted a core for so long waits for somebody."""
Params: TypeAlias = Mapping[str, Mapping[str, object]]


def alone(**program: object) -> Plan:
    """One stage with a program."""
    args = {"num_outputs": 3, **program}
    return fake_plan([FakeStage(name="only", final="text", args=args, recovery=AT_ONCE)])


def victims(stage: str) -> Plan:
    """Three stages that come back at once, two replicas of the one that is killed.

    The arena is small, so that a consumer that sleeps makes its producer pause.
    """
    stages = three_stages(**{stage: (2, "round_robin")})
    thinker = replace(stages[0], args={"num_outputs": 3, "output_bytes": 20_000})
    stages = (thinker, *stages[1:])
    return fake_plan([replace(each, recovery=AT_ONCE) for each in stages], arena_bytes=128 * 1024)


# --- start and load: the start fails, and says which stage ----------------------------------------


async def spawned(omni: AsyncOmni) -> None:
    """Killed before it has read what it is to be."""
    start = asyncio.ensure_future(omni.start())
    while not omni.pids:  # noqa: ASYNC110  that is the next moment
        await asyncio.sleep(0)
    os.kill(next(iter(omni.pids.values())), signal.SIGKILL)
    await start


async def by_its_program(omni: AsyncOmni) -> None:
    """Killed by itself."""
    await omni.start()


STARTS: Final[Mapping[str, tuple[Plan, Callable[[AsyncOmni], Awaitable[None]]]]] = {
    "spawned": (alone(), spawned),
    "construct": (alone(kill_at="construct"), by_its_program),
    "load": (alone(kill_at="load"), by_its_program),
    "loaded": (alone(kill_at="loaded"), by_its_program),
}
"""Plan and course by point."""


async def start_and_die(point: str) -> None:
    """Start a system whose stage dies on the way."""
    plan, course = STARTS[point]
    try:
        await course(AsyncOmni(plan))
    except StartupError as error:
        assert error.stage == "only"  # noqa: PT017  the error is what the course is about
        assert "stage `only` replica `0` was killed by SIGKILL" in str(error)  # noqa: PT017
    else:
        raise AssertionError("the start did not fail")


# --- run: its own requests fail, the others do not notice -----------------------------------------


async def heard(omni: AsyncOmni, params: Params, watch: Watch) -> list[OmniOutput]:
    """What a doomed request gives before its error, which is checked."""
    outputs: list[OmniOutput] = []
    try:
        async for output in omni.generate("doomed", sampling_params=params, on_progress=watch):
            outputs.append(output)  # noqa: PERF401  they are wanted when it fails
    except StageFailedError as error:
        assert "was killed by SIGKILL" in str(error)  # noqa: PT017
        assert error.retryable is not bool(outputs)  # noqa: PT017
        assert error.stage is not None  # noqa: PT017
        assert f"stage `{error.stage}` replica `{error.replica}`" in str(error)  # noqa: PT017
        return outputs
    raise AssertionError("the request did not fail")


async def in_a_call(started: Started, stage: str, point: str, **more: object) -> None:
    """Killed in a call of the engine."""
    await heard(started.omni, {stage: {"kill_at": point, **more}}, Watch())


async def in_the_middle(started: Started, stage: str) -> None:
    """Killed in the step after its first output."""
    await in_a_call(started, stage, "step", fail_step=1)


async def while_its_consumer_sleeps(started: Started, stage: str, point: str) -> None:
    """Killed when it has to pause, or may go on again; the caller is the consumer of the last."""
    consumer = NAMES.index(stage) + 1
    size = 1_000_000 if consumer == len(NAMES) else 20_000  # the caller's arena is larger
    params: dict[str, dict[str, object]] = {
        "thinker": {"num_outputs": 20, "output_bytes": size, "delay_steps": 300}
    }
    params[stage] = {**params.get(stage, {}), "kill_at": point}
    watch = Watch()
    replica = idle_one(started, stage)
    victim = started.pid(NAMES.index(stage), replica)
    doomed = asyncio.ensure_future(heard(started.omni, params, watch))
    if consumer == len(NAMES):
        runs = asyncio.ensure_future(watch.until(stage, StageState.RUNNING))
        await asyncio.wait({runs, doomed}, return_when=asyncio.FIRST_COMPLETED)
        runs.cancel()
        wait_until_asleep(victim)  # which holds up the caller, as is wanted
    else:
        pid = started.pid(consumer)
        os.kill(pid, signal.SIGSTOP)
        try:
            await watch.until(stage, StageState.RUNNING)
            await asyncio.to_thread(wait_until_asleep, victim)
        finally:
            os.kill(pid, signal.SIGCONT)
    await doomed


async def in_cancel(started: Started, stage: str) -> None:
    """Killed when its user has gone."""
    watch = Watch()
    params = {stage: {"kill_at": "cancel", "fail_at": "stall", "fail_step": 1}}
    doomed = asyncio.ensure_future(started.omni.run("x", sampling_params=params, on_progress=watch))
    news = await watch.until(stage, StageState.RUNNING)
    before = seat(started, stage, news.replica).num_restarts
    doomed.cancel()
    await asyncio.gather(doomed, return_exceptions=True)
    await started.until(lambda: seat(started, stage, news.replica).num_restarts > before)


async def while_idle(started: Started, stage: str) -> None:
    """Killed while nobody asks it anything."""
    await _kill_and_wait(started, stage, idle_one(started, stage))


async def as_soon_as_it_is_back(started: Started, stage: str) -> None:
    """Killed again when it has just come back."""
    replica = idle_one(started, stage)
    await _kill_and_wait(started, stage, replica)
    await started.until_serving()
    await _kill_and_wait(started, stage, replica)


async def while_it_loads_again(started: Started, stage: str) -> None:
    """Killed while it comes back."""
    replica = idle_one(started, stage)
    await _kill_and_wait(started, stage, replica)
    await started.until(lambda: seat(started, stage, replica).pid is not None)
    await _kill_and_wait(started, stage, replica)


def wait_until_asleep(pid: int) -> None:
    """Wait until a process neither runs nor waits for a core: it has done what it could."""

    def times() -> list[str]:
        with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
            tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
            return sorted(task.read_text(encoding="ascii") for task in tasks)
        return []

    seen = times()
    while True:
        time.sleep(ASLEEP_S)
        if seen == (seen := times()):
            return


def idle_one(started: Started, stage: str) -> int:
    """The replica that the other request is not bound to."""
    busy = started.in_flight()[NAMES.index(stage)]
    return busy.index(min(busy))


def seat(started: Started, stage: str, replica: int) -> ReplicaHealth:
    """How a replica is."""
    return started.omni.health().stages[NAMES.index(stage)].replicas[replica]


async def _kill_and_wait(started: Started, stage: str, replica: int) -> None:
    before = seat(started, stage, replica).num_restarts
    os.kill(started.pid(NAMES.index(stage), replica), signal.SIGKILL)
    await started.until(lambda: seat(started, stage, replica).num_restarts > before)


# --- drain: it leaves, whether it lives to the end of that or not ---------------------------------


async def while_it_leaves(started: Started, stage: str, *, busy: bool) -> None:
    """Killed while it finishes what it has, or has been told to stop."""
    watch = Watch()
    number = NAMES.index(stage)
    params = {stage: {"fail_at": "stall", "fail_step": 1}}
    doomed = [
        asyncio.ensure_future(started.omni.run("x", sampling_params=params, on_progress=watch))
        for _ in range(2 if busy else 0)
    ]
    if busy:
        await watch.until(stage, StageState.RUNNING)
    pid = started.pid(number, 1)
    leaving = asyncio.ensure_future(started.omni.scale(stage, 1, drain_s=60))
    while seat(started, stage, 1).state is not ReplicaState.DRAINING:  # noqa: ASYNC110  it is soon
        await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    await leaving
    for task in doomed:
        task.cancel()
    ends = await asyncio.gather(*doomed, return_exceptions=True)
    if busy:
        (error,) = (end for end in ends if isinstance(end, StageFailedError))
        assert f"stage `{stage}` replica `1` was killed by SIGKILL" in str(error)
    assert len(started.omni.pids) == len(NAMES)
    await started.omni.scale(stage, 2)


Course: TypeAlias = Callable[[Started, str], Awaitable[None]]

RUNS: Final[Mapping[str, Course]] = {
    "add": lambda started, stage: in_a_call(started, stage, "add"),
    "append": lambda started, stage: in_a_call(started, stage, "append"),
    "first step": lambda started, stage: in_a_call(started, stage, "step"),
    "in the middle": in_the_middle,
    "finish": lambda started, stage: in_a_call(started, stage, "finish"),
    "pause": lambda started, stage: while_its_consumer_sleeps(started, stage, "pause"),
    "resume": lambda started, stage: while_its_consumer_sleeps(started, stage, "resume"),
    "cancel": in_cancel,
    "idle": while_idle,
    "back": as_soon_as_it_is_back,
    "loads again": while_it_loads_again,
    "leaves with a request": lambda started, stage: while_it_leaves(started, stage, busy=True),
    "leaves": lambda started, stage: while_it_leaves(started, stage, busy=False),
}
"""Course by point, on a system that serves."""


# --- stop: the system ends all the same -----------------------------------------------------------


async def told(omni: AsyncOmni) -> None:
    """Killed when it has just been told to stop."""
    (pid,) = omni.pids.values()
    closing = asyncio.ensure_future(omni.close())
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    await closing


async def in_its_end(omni: AsyncOmni) -> None:
    """Killed by itself while it stops."""
    await omni.close()


STOPS: Final[Mapping[str, tuple[Plan, Callable[[AsyncOmni], Awaitable[None]]]]] = {
    "told to stop": (alone(), told),
    "close": (alone(kill_at="close"), in_its_end),
    "closed": (alone(kill_at="closed"), in_its_end),
}
"""Plan and course by point."""


async def stop_and_die(point: str) -> None:
    """Stop a system whose stage dies on the way, while a request runs."""
    plan, course = STOPS[point]
    omni = AsyncOmni(plan)
    await omni.start()
    watch = Watch()
    params = {"only": {"fail_at": "stall", "fail_step": 1}}
    running = asyncio.ensure_future(omni.run("x", sampling_params=params, on_progress=watch))
    await watch.until("only", StageState.RUNNING)
    await course(omni)
    (end,) = await asyncio.gather(running, return_exceptions=True)
    assert isinstance(end, ClosedError | StageFailedError)
    assert omni.pids == {}
