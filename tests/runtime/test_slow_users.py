"""Users who do not read, before processes: their stages stop, all others go on.

Every stage is told to fail at an output that it only comes to when somebody reads.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from stagemesh.errors import ClosedError, DeadlineError, DiagnosticError, StageFailedError
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.outputs import OmniOutput
from stagemesh.runtime.running import Running
from stagemesh.testing.fake_plan import FakeStage, fake_plan
from tests.runtime.started import Started

pytestmark = pytest.mark.slow

NUM, BYTES = 300, 20_000
UNREAD = 10 * BYTES
PLAN = fake_plan(
    [
        FakeStage(name="thinker", args={"num_outputs": NUM, "output_bytes": BYTES}),
        FakeStage(name="talker"),
        FakeStage(name="vocoder", final="data"),
    ]
)


@pytest.fixture(scope="module")
def started() -> Iterator[Started]:
    """Three stages."""
    with Started(PLAN, unread_bytes=UNREAD) as found:
        yield found


async def others(started: Started, num: int = 3) -> None:
    """Requests that are read, from the first output to the last."""
    for _ in range(num):
        result = await started.omni.run("other", sampling_params={"thinker": {"num_outputs": 100}})
        assert len(result.outputs) == 100


async def read_into(got: list[OmniOutput], running: Running) -> None:
    """Read all that is still to come; what was read before an error is kept."""
    async for output in running:
        got.append(output)  # noqa: PERF401  it may end with an error


async def rest(running: Running) -> list[OmniOutput]:
    """All that is still to be read."""
    return [output async for output in running]


@pytest.mark.parametrize(("stage", "step"), [("vocoder", 60), ("talker", 120), ("thinker", 180)])
def test_who_does_not_read_stops_the_stages(started: Started, stage: str, step: int) -> None:
    """None comes to the output at which it fails until its user reads; others do not notice."""

    async def work() -> None:
        running = started.omni.submit(
            "slow", sampling_params={stage: {"fail_at": "step", "fail_step": step}}
        )
        await others(started)
        assert BYTES < running.unread_bytes <= UNREAD
        got: list[OmniOutput] = []
        with pytest.raises(StageFailedError, match=f"`{stage}`"):
            await read_into(got, running)
        assert len(got) > UNREAD // BYTES
        assert [output.payload.meta["text"] for output in got] == [
            f"slow#{number}" for number in range(len(got))
        ]

    started.call(work())
    started.settle()


def test_many_who_do_not_read_get_everything_when_they_do(started: Started) -> None:
    """Far more than the memory of an edge is on hold meanwhile, and others run on."""

    async def work() -> None:
        slow = [started.omni.submit(f"slow {number}") for number in range(24)]
        await others(started, 2)
        assert all(running.unread_bytes <= UNREAD for running in slow)
        assert started.in_flight() == dict.fromkeys(range(3), (24,))
        for got in await asyncio.gather(*map(rest, slow)):
            assert [output.payload.buffer("data").data[0] for output in got] == [
                number % 256 for number in range(NUM)
            ]

    started.call(work())
    started.settle()


def test_who_leaves_in_the_pause_frees_every_stage(started: Started) -> None:
    """So does a deadline."""

    async def work() -> None:
        left = started.omni.submit("left")
        late = started.omni.submit("late", timeout_s=1.0)
        await others(started, 1)
        left.close()
        with pytest.raises(ClosedError):
            await rest(left)
        await started.until(lambda: late.unread_bytes == 0)
        with pytest.raises(DeadlineError):
            await rest(late)

    started.call(work())
    started.settle()
    assert started.in_flight() == dict.fromkeys(range(3), (0,))


@pytest.mark.parametrize("stage", range(3))
def test_a_death_in_the_pause_is_told(stage: int) -> None:
    """What had come before can be read, then the error; whoever comes next is served."""
    with Started(PLAN, unread_bytes=UNREAD) as started:

        async def work() -> None:
            running = started.omni.submit("slow")
            await others(started, 1)
            os.kill(started.pid(stage), signal.SIGKILL)
            with pytest.raises(StageFailedError, match="SIGKILL"):
                await rest(running)
            await started.until_serving()
            await others(started, 1)

        started.call(work())
        started.settle()


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None])
def test_a_bound_that_is_none_is_a_diagnostic(limit: object) -> None:
    """There is no system without a bound."""
    with pytest.raises(DiagnosticError, match="RT019"):
        AsyncOmni(PLAN, unread_bytes=limit)  # type: ignore[arg-type]
