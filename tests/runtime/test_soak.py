"""The long form: minutes of mixed traffic, half of it abandoned, leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import random
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from stagemesh.runtime.omni import AsyncOmni
from stagemesh.testing.fake_plan import fake_plan, three_stages

SOAK_S = 120
CLIENTS = 12
WARM_UP_S = 15
MOST_SPARE_FILES = 256
MOST_GROWN_BYTES = 96 * 1024 * 1024
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int) -> int:
    """Open descriptors of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def resident(pid: int) -> int:
    """Bytes that a process holds in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


async def client(omni: AsyncOmni, seed: int, until: float) -> int:
    """Ask until the time is over; leave about half of the answers in the middle."""
    rng = random.Random(seed)  # noqa: S311  traffic, no secret
    answered = 0
    while time.monotonic() < until:
        patience = rng.choice([0, 1, 3, 1000])
        sizes = {"thinker": {"output_bytes": rng.choice([10, 40_000, 600_000])}}
        async with aclosing(omni.generate("hi", sampling_params=sizes)) as outputs:
            heard = 0
            async for _ in outputs:
                heard += 1
                if heard > patience:
                    break
        answered += heard <= patience
    return answered


async def traffic(omni: AsyncOmni, seconds: float) -> int:
    """Run all clients for so long; return how many answers were heard to the end."""
    until = time.monotonic() + seconds
    return sum(await asyncio.gather(*(client(omni, seed, until) for seed in range(CLIENTS))))


async def soak(seconds: float) -> None:
    """Measure after a warm-up, and again after the soak."""
    plan = fake_plan(three_stages(talker=(2, "least_queue"), vocoder=(2, "random")))
    async with AsyncOmni(plan) as omni:
        pids = [os.getpid(), *omni.pids.values()]
        await traffic(omni, WARM_UP_S)
        await omni.run("hi")
        fds, memory = [descriptors(pid) for pid in pids], [resident(pid) for pid in pids]
        assert await traffic(omni, seconds) > 100
        result = await omni.run("hi")
        assert result.text == "hi#0hi#1hi#2"
        # memory files of giants are kept for the next one, up to a bound per edge
        opened = [descriptors(pid) - before for pid, before in zip(pids, fds, strict=True)]
        assert max(opened) < MOST_SPARE_FILES, opened
        grown = [resident(pid) - before for pid, before in zip(pids, memory, strict=True)]
        assert max(grown) < MOST_GROWN_BYTES, grown


@pytest.mark.nightly
@pytest.mark.timeout(SOAK_S + 120)
def test_minutes_of_traffic_leave_no_descriptor_and_no_memory() -> None:
    """Twelve clients, five replicas, payloads of all sizes, answers left in the middle."""
    asyncio.run(soak(SOAK_S))
