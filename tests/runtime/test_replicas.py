"""Several replicas of a stage: who gets which request."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from stagemesh.errors import ClosedError
from tests.runtime.started import Started

pytestmark = pytest.mark.slow

STALL = {"vocoder": {"fail_at": "stall"}}


def served(started: Started, stage: str, count: int) -> list[int]:
    """Which replica of a stage served each of `count` requests, one after another."""
    found: list[int] = []
    for _ in range(count):
        (report,) = [part for part in started.run().report if part.stage == stage]
        found += report.replicas
    return found


def test_each_stage_follows_its_own_policy(replicated: Started) -> None:
    """Round robin and idle least-queue alternate; random is not bound to."""
    assert served(replicated, "thinker", 4) in ([0, 1, 0, 1], [1, 0, 1, 0])
    assert served(replicated, "vocoder", 4) in ([0, 1, 0, 1], [1, 0, 1, 0])


def test_random_reaches_every_replica(replicated: Started) -> None:
    """Among many requests at once every replica of the random stage serves some."""
    results = replicated.many(["hi"] * 40)
    counts = Counter(
        part.replicas for result in results for part in result.report if part.stage == "talker"
    )
    assert set(counts) == {(0,), (1,)}


def test_least_queue_avoids_the_busy_replica(replicated: Started) -> None:
    """While two requests hold one replica each and one more leaves, its replica is taken next."""

    async def run() -> tuple[set[tuple[int, ...]], tuple[int, ...]]:
        stalled = [replicated.omni.generate("hi", sampling_params=STALL) for _ in range(3)]
        for outputs in stalled:
            await anext(outputs)
        busy = replicated.in_flight()[2]
        idlest = busy.index(min(busy))
        results = [await replicated.omni.run("hi") for _ in range(3)]
        for outputs in stalled:
            await outputs.aclose()
        return {result.report[2].replicas for result in results}, (idlest,)

    got, idlest = replicated.call(run())
    assert got == {idlest}


def test_every_replica_is_reached_from_every_other(replicated: Started) -> None:
    """Whatever the routes, answers are whole and nothing is left in flight."""
    results = replicated.many([f"q{number}" for number in range(16)])
    assert [result.text for result in results] == [
        f"q{number}#0q{number}#1q{number}#2" for number in range(16)
    ]
    assert replicated.in_flight() == {0: (0, 0), 1: (0, 0), 2: (0, 0)}


def test_closing_fails_what_runs(replicated: Started) -> None:
    """A request that runs when the system is closed ends with `ClosedError`."""
    with Started(replicated.omni.plan) as own:

        async def run() -> None:
            outputs = own.omni.generate("hi", sampling_params=STALL)
            await anext(outputs)
            await asyncio.gather(own.omni.close(), own.omni.close())
            async for _ in outputs:
                pass

        with pytest.raises(ClosedError, match="closed while"):
            own.call(run())
