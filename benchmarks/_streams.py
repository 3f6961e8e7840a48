"""Streams of chunks through pipelines of fake stages, and what they cost whom.

CPU time is read from the scheduler's own account of every thread, so it does not depend on what
else the machine does; latencies do.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stagemesh.runtime.omni import AsyncOmni
from stagemesh.testing.fake_plan import FakeStage, fake_plan

ARENA_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A pipeline, and streams through it."""

    stages: int = 3
    """Stages in a row; the first makes chunks, the others pass them on."""
    replicas: int = 1
    """Replicas of the first stage."""
    streams: int = 16
    """Streams at once."""
    chunk_bytes: int = 4096
    """Bytes of each chunk."""
    chunks: int = 100
    """Chunks of each stream."""
    step_s: float = 0.0
    """Seconds of a step of the first stage, which makes one chunk of each of its streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a load cost."""

    chunks: int
    """Chunks that reached the user."""
    seconds: float
    """Seconds that it took."""
    frontend_us: float
    """Microseconds of CPU in the caller's process for each of them."""
    tree_us: float
    """Microseconds of CPU in all processes for each of them."""
    first_output_ms: float
    """Median milliseconds from asking to the first chunk of a stream."""

    def as_json(self) -> Mapping[str, float]:
        """The numbers, rounded."""
        return {
            "chunks": self.chunks,
            "seconds": round(self.seconds, 3),
            "chunks_per_s": round(self.chunks / self.seconds, 1),
            "frontend_us_per_chunk": round(self.frontend_us, 1),
            "tree_us_per_chunk": round(self.tree_us, 1),
            "first_output_ms": round(self.first_output_ms, 3),
        }


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds that these processes have used, from the scheduler's own account."""
    return sum(
        int(thread.read_text(encoding="ascii").split()[0]) / 1e9
        for pid in pids
        for thread in Path(f"/proc/{pid}/task").glob("*/schedstat")
    )


async def cost_of(load: Load) -> Cost:
    """Run a load once to warm up and once to measure it."""
    args = {"output_bytes": load.chunk_bytes, "step_s": load.step_s, "num_outputs": load.chunks}
    first = FakeStage(name="stage-0", replicas=load.replicas, args=args)
    rest = [FakeStage(name=f"stage-{number}") for number in range(1, load.stages)]
    stages = [first, *rest]
    last = stages[-1]
    stages[-1] = FakeStage(name="last", final="audio", replicas=last.replicas, args=last.args)
    async with AsyncOmni(fake_plan(stages, arena_bytes=ARENA_BYTES)) as omni:
        own, others = [os.getpid()], list(omni.pids.values())
        await asyncio.gather(*(_stream(omni) for _ in range(load.streams)))
        before, began = (cpu_s(own), cpu_s(others)), time.perf_counter()
        found = await asyncio.gather(*(_stream(omni) for _ in range(load.streams)))
        seconds = time.perf_counter() - began
        used, used_by_others = cpu_s(own) - before[0], cpu_s(others) - before[1]
    chunks = sum(count for count, _first in found)
    return Cost(
        chunks=chunks,
        seconds=seconds,
        frontend_us=1e6 * used / chunks,
        tree_us=1e6 * (used + used_by_others) / chunks,
        first_output_ms=1e3 * statistics.median(first for _count, first in found),
    )


async def _stream(omni: AsyncOmni) -> tuple[int, float]:
    """Read one stream to its end; return how many chunks came, and after how long the first."""
    began, count, first_s = time.perf_counter(), 0, 0.0
    async for _output in omni.generate("stream"):
        count += 1
        first_s = first_s or time.perf_counter() - began
    return count, first_s
