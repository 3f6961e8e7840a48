"""A system that runs on a loop of its own, for tests that are not coroutines."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from stagemesh.plan.values import Plan
from stagemesh.runtime.health import ReplicaState
from stagemesh.runtime.loop_thread import LoopThread
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.outputs import OmniOutput, OmniResult, StageProgress, StageState
from stagemesh.runtime.params import SamplingParams
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.running import UNREAD_BYTES
from tests.waiting import WAIT_S

Result = TypeVar("Result")
POLL_S = 0.02
"""Time between two looks at what nobody tells of."""


def wait_for_exit(pid: int) -> None:
    """Wait until a process is gone; fails when it stays."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([pidfd], [], [], WAIT_S)
        assert ready, f"process {pid} is still there"
    finally:
        os.close(pidfd)


class Started:
    """An `AsyncOmni` of a plan, started and closed as a context."""

    def __init__(self, plan: Plan, unread_bytes: int = UNREAD_BYTES) -> None:
        """Start nothing yet."""
        self._plan = plan
        self._unread_bytes = unread_bytes

    def __enter__(self) -> Self:
        self._thread = LoopThread()
        self.omni = AsyncOmni(self._plan, unread_bytes=self._unread_bytes)
        try:
            self.call(self.omni.start(timeout_s=WAIT_S))
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.call(self.omni.close())
        finally:
            self._thread.stop()

    def call(self, work: Coroutine[Any, Any, Result], wait_s: float | None = WAIT_S) -> Result:
        """Run a coroutine on the system's loop; `None` waits for as long as it takes."""
        return self._thread.call(asyncio.wait_for(work, wait_s))

    def run(self, prompt: str = "hi", params: SamplingParams | None = None) -> OmniResult:
        """Run one request, with parameters by stage."""
        return self.call(self.omni.run(prompt, sampling_params=params))

    def many(self, prompts: list[str]) -> list[OmniResult]:
        """Run several requests at once."""

        async def run() -> list[OmniResult]:
            return list(await asyncio.gather(*map(self.omni.run, prompts)))

        return self.call(run())

    def pid(self, stage: int, replica: int = 0) -> int:
        """The process of a replica."""
        return self.omni.pids[ReplicaId(stage=stage, replica=replica)]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for what nobody tells of; whoever calls has the deadline."""
        while not holds():  # noqa: ASYNC110  there is no event
            await asyncio.sleep(POLL_S)

    async def until_serving(self) -> None:
        """Wait until every replica takes requests."""
        await self.until(
            lambda: all(
                replica.state is ReplicaState.SERVING
                for stage in self.omni.health().stages
                for replica in stage.replicas
            )
        )

    def in_flight(self) -> dict[int, tuple[int, ...]]:
        """Requests bound to each replica."""
        bound = self.omni.measures().traffic.bound
        return {
            stage: tuple(count for _, count in sorted(replicas.items()))
            for stage, replicas in bound.items()
        }

    def settle(self) -> None:
        """Ask until the stages have said their last word about every request that was left."""

        async def ask() -> None:
            while any(map(any, self.in_flight().values())):
                await self.omni.run("hi")

        self.call(ask())


class Watch:
    """Hears of progress and wakes who waits for it."""

    def __init__(self) -> None:
        """Has heard nothing."""
        self.heard: list[StageProgress] = []
        self._news = asyncio.Event()

    def __call__(self, progress: StageProgress) -> None:
        """Hear."""
        self.heard.append(progress)
        self._news.set()

    async def until(self, stage: str, state: StageState) -> StageProgress:
        """Wait until a stage has come so far."""
        while True:
            for progress in self.heard:
                if (progress.stage, progress.state) == (stage, state):
                    return progress
            self._news.clear()
            await self._news.wait()


async def collect(omni: AsyncOmni, prompt: str) -> list[OmniOutput]:
    """All outputs of one request as they appear."""
    return [output async for output in omni.generate(prompt)]
