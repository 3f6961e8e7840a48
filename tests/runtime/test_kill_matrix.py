"""SIGKILL at twenty points of start, load, run, drain and stop, for every kind of stage.

After each: the right error to the right requests, the rest served as if nothing had happened, no
process, no entry in `/dev/shm`, no descriptor more. The short form kills one kind of stage.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from stagemesh.errors import StageFailedError
from stagemesh.runtime.outputs import OmniResult
from tests.runtime import caller_points, kill_points
from tests.runtime.leaks import descriptors, host
from tests.runtime.started import Started, wait_for_exit
from tests.waiting import WAIT_S

SHORT: Final = "talker"
SHORT_CALLER: Final = ("spawned one",)
STAGES: Final = [
    pytest.param(name, marks=[pytest.mark.slow] if name == SHORT else [pytest.mark.nightly])
    for name in kill_points.NAMES
]
WHOLE: Final = [f"other#{number}" for number in range(3)]
SPARED: Final = frozenset(kill_points.RUNS) - {"leaves", "leaves with a request"}
"""Points at which the other request is on another replica than the one that is killed."""
SPARE_FILES: Final = 20
"""Most memory files that an edge keeps for giants to come: a request has no more outputs."""


@pytest.fixture(scope="module")
def systems() -> Iterator[dict[str, Started]]:
    """Systems that serve, by the stage that is killed; started when they are first asked for."""
    with contextlib.ExitStack() as stack:
        found: dict[str, Started] = {}
        before = host()
        yield found
        for started in found.values():
            stack.callback(started.__exit__, None, None, None)
        stack.close()
        assert host() == before


@pytest.mark.slow
@pytest.mark.parametrize("point", kill_points.STARTS)
def test_a_death_on_the_way_up_stops_the_start(point: str) -> None:
    """With an error that names stage, replica and signal; nothing is left."""
    before = host()
    asyncio.run(asyncio.wait_for(kill_points.start_and_die(point), WAIT_S))
    assert host() == before


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("point", kill_points.RUNS)
def test_a_death_in_service_fails_what_was_bound_to_it_alone(
    point: str, stage: str, systems: dict[str, Started]
) -> None:
    """Requests that run meanwhile have their bytes, and afterwards every replica serves again."""
    if stage not in systems:
        systems[stage] = Started(kill_points.victims(stage)).__enter__()
        systems[stage].many(["hi"] * 4)
    started = systems[stage]

    async def run() -> None:
        before, arenas = descriptors(started)
        other = asyncio.ensure_future(
            started.omni.run("other", sampling_params={"thinker": {"delay_steps": 3000}})
        )
        await asyncio.sleep(0)  # it is bound now, and the next request goes to another replica
        await kill_points.RUNS[point](started, stage)
        (result,) = await asyncio.gather(other, return_exceptions=True)
        if point in SPARED or not isinstance(result, StageFailedError):
            assert isinstance(result, OmniResult), result
            said = [output for output in result.outputs if output.stage == "vocoder"]
            assert [output.payload.meta["text"] for output in said] == WHOLE
            assert [bytes(output.payload.buffers[0].data[:1])[0] for output in said] == [0, 1, 2]
        await started.until_serving()
        assert {(await started.omni.run("other")).text for _ in range(4)} == {"".join(WHOLE)}
        await started.until(lambda: descriptors(started)[0] == before)
        kept = descriptors(started)[1]
        assert all(now - then <= 2 * SPARE_FILES for then, now in zip(arenas, kept, strict=True))

    started.call(run())
    assert {sum(counts) for counts in started.in_flight().values()} == {0}


@pytest.mark.slow
@pytest.mark.parametrize("point", kill_points.STOPS)
def test_a_death_on_the_way_down_stops_nothing(point: str) -> None:
    """The system ends, the request that ran has its error, and nothing is left."""
    before = host()
    asyncio.run(asyncio.wait_for(kill_points.stop_and_die(point), WAIT_S))
    assert host() == before


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(
            point, marks=[pytest.mark.slow if point in SHORT_CALLER else pytest.mark.nightly]
        )
        for point in caller_points.POINTS
    ],
)
def test_the_death_of_the_caller_ends_everything(point: str, tmp_path: Path) -> None:
    """Wherever it was: no stage outlives it, those included that were just being started."""
    record = tmp_path / "pids"
    before = host()
    command = [sys.executable, "-m", "tests.runtime.caller_points", point, str(record)]
    caller = subprocess.run(command, timeout=WAIT_S, check=False)
    assert caller.returncode == -signal.SIGKILL
    pids = [int(line) for line in record.read_text(encoding="ascii").split()]
    assert pids
    for pid in pids:
        wait_for_exit(pid)
    assert host() == before


def test_there_are_twenty_points() -> None:
    """As many as were promised, for each kind of process."""
    assert len([*kill_points.STARTS, *kill_points.RUNS, *kill_points.STOPS]) == 20
    assert len(caller_points.POINTS) == 20
