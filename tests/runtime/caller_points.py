"""A caller that is killed at a named point of its life: `python -m tests.runtime.caller_points`.

Arguments: the point, and a file that takes the numbers of all stage processes there have been. The
points wrap the runtime's own functions, so that death comes between two of its actions.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from stagemesh.plan.setup import RecoveryPlan
from stagemesh.runtime import endings
from stagemesh.runtime.crew import Crew
from stagemesh.runtime.dialogue import Dialogue
from stagemesh.runtime.frontend import Frontend
from stagemesh.runtime.health import ReplicaHealth, ReplicaState
from stagemesh.runtime.launchers.local import LocalLauncher
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.outputs import StageProgress
from stagemesh.runtime.supervisor import Supervisor
from stagemesh.testing.fake_plan import fake_plan, three_stages

POINTS: Final = (
    "spawned one",
    "spawned all",
    "introduced one",
    "introduced all",
    "ready one",
    "ready all",
    "attached",
    "submitted",
    "progress",
    "first output",
    "last output",
    "left",
    "idle",
    "lost one",
    "before a restart",
    "restarting",
    "joining",
    "leaving",
    "draining",
    "stopping",
)


def die() -> None:
    """End by SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


def killed_after(owner: Any, name: str, at_call: int = 1) -> None:  # noqa: ANN401  any class
    """Die when that function has returned for the `at_call`th time."""
    function: Callable[..., Any] = getattr(owner, name)
    calls = 0

    @functools.wraps(function)
    def wrapped(*args: object, **kwargs: object) -> object:
        nonlocal calls
        result = function(*args, **kwargs)
        calls += 1
        if calls == at_call:
            die()
        return result

    setattr(owner, name, wrapped)


WRAPPED: Final[dict[str, tuple[Any, str, int]]] = {
    "spawned one": (Crew, "_spawn", 1),
    "spawned all": (Crew, "_spawn", 3),
    "introduced one": (LocalLauncher, "connect", 1),
    "introduced all": (LocalLauncher, "connect", 2),
    "ready one": (Dialogue, "hear", 8),
    "ready all": (Crew, "serves", 1),
    "attached": (Frontend, "_attach", 2),
    "submitted": (Frontend, "_begin", 1),
    "lost one": (Frontend, "down", 1),
    "before a restart": (Supervisor, "_come_back", 1),
    "restarting": (Crew, "_spawn", 4),
    "draining": (Frontend, "drain", 1),
    "stopping": (endings, "kill", 1),
}
"""What has just been done when death comes."""


def noted(record: Path) -> None:
    """Write down every process that is started."""
    spawn = Crew._spawn

    def wrapped(self: Crew, member: Any) -> None:  # noqa: ANN401  a member
        spawn(self, member)
        with record.open("a", encoding="ascii") as file:
            file.write(f"{member.process.pid}\n")

    Crew._spawn = wrapped  # type: ignore[method-assign]


async def ask(omni: AsyncOmni, point: str) -> None:
    """Ask once to the end, and once not."""

    def progress(_news: StageProgress) -> None:
        if point == "progress":
            die()

    async with aclosing(omni.generate("hi", on_progress=progress)) as outputs:
        async for output in outputs:
            if point == "first output" or (point == "last output" and output.final):
                die()
    stall = {"vocoder": {"fail_at": "stall"}}
    async with aclosing(omni.generate("hi", sampling_params=stall)) as outputs:
        await anext(outputs)
    if point == "left":
        die()
    await omni.run("hi")
    if point == "idle":
        die()


async def live(point: str) -> None:
    """Do everything that a caller does; somewhere on the way it dies."""
    recovery = RecoveryPlan(restart_delay=0.0)
    omni = AsyncOmni(fake_plan([replace(stage, recovery=recovery) for stage in three_stages()]))
    await omni.start()
    await ask(omni, point)
    os.kill(next(iter(omni.pids.values())), signal.SIGKILL)

    def thinker() -> ReplicaHealth:
        return omni.health().stages[0].replicas[0]

    while (thinker().num_restarts, thinker().state) != (1, ReplicaState.SERVING):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    for number, name in ((2, "joining"), (1, "leaving")):
        scaling = asyncio.ensure_future(omni.scale("talker", number))
        await asyncio.sleep(0)
        if point == name:
            die()
        await scaling
    await omni.drain()
    await omni.close()


if __name__ == "__main__":
    noted(Path(sys.argv[2]))
    if sys.argv[1] in WRAPPED:
        killed_after(*WRAPPED[sys.argv[1]])
    asyncio.run(live(sys.argv[1]))
