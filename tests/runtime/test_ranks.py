"""Stages of several ranks: they serve as one, and whatever ends one of them ends its replica."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from stagemesh.errors import InvalidRequestError, StageFailedError, StartupError
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.plan.values import Plan
from stagemesh.runtime import child, monitor
from stagemesh.runtime.outputs import OmniResult
from stagemesh.testing.connector_conformance import open_fds
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.started import Started, wait_for_exit

pytestmark = pytest.mark.slow

AT_ONCE: Final = RecoveryPlan(restart_delay=0, max_restarts=1000)
LONG_FORM: Final = [1, *(pytest.param(rank, marks=pytest.mark.nightly) for rank in (0, 2))]
"""Ranks that something happens to: the short form takes one of those that follow."""
END_S: Final = 5.0
"""The stated limit: after the death of a rank its replica is gone within this time."""
SHARED: Final = Path("/dev/shm")  # noqa: S108  it is looked at
MAINS: Final = ("stagemesh.runtime.stage_main", "stagemesh.runtime.rank_main")


def plan_of(ranks: int, replicas: int = 1, **program: object) -> Plan:
    """Three stages; the middle one has so many ranks."""
    thinker, talker, vocoder = (
        replace(stage, recovery=AT_ONCE) for stage in three_stages(talker=(replicas, "round_robin"))
    )
    return fake_plan([thinker, replace(talker, ranks=ranks, args=program), vocoder])


def processes() -> dict[int, str]:
    """Modules of all processes that this one has started, by pid."""
    found = {}
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has ended meanwhile
            for pid in (task / "children").read_text(encoding="ascii").split():
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                found.update({int(pid): word for word in words if word in MAINS})
    return found


def ranks_of(started: Started, replica: int = 0) -> list[int]:
    """Processes of a talker, rank 0 first; those of one replica are started one after the other."""
    first = started.pid(1, replica)
    others = sorted(pid for pid, name in processes().items() if name == MAINS[1] and pid > first)
    stages = sorted(pid for pid, name in processes().items() if name == MAINS[0] and pid > first)
    return [first, *(pid for pid in others if not stages or pid < stages[0])]


@contextlib.contextmanager
def leaving_nothing() -> Iterator[None]:
    """There is nothing more at the end than there was."""
    before, fds, shared = processes(), open_fds(), set(SHARED.iterdir())
    yield
    assert processes() == before
    assert open_fds() == fds
    assert set(SHARED.iterdir()) <= shared


@pytest.fixture
def _nothing_left() -> Iterator[None]:
    """Whatever a test does, there is nothing more after it than before."""
    with leaving_nothing():
        yield


def descriptors(pid: int) -> int:
    """How many descriptors a process has."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def all_gone(pids: Sequence[int]) -> None:
    """Wait until none of these processes is left."""
    for pid in pids:
        await asyncio.to_thread(wait_for_exit, pid)


def said(result: OmniResult) -> list[tuple[object, bytes]]:
    """Text and bytes of everything that the last stage has said."""
    return [
        (output.payload.meta["text"], b"".join(bytes(one.data) for one in output.payload.buffers))
        for output in result.outputs
        if output.stage == "vocoder"
    ]


@pytest.mark.usefixtures("_nothing_left")
def test_outputs_are_the_same_for_any_number_of_ranks() -> None:
    """Although each rank makes its slice only; one rank has no further process at all."""
    found = {}
    for ranks in (1, 2, 4):
        before = processes()
        with Started(plan_of(ranks)) as started:
            assert len(processes()) - len(before) == 2 + ranks
            assert len(ranks_of(started)) == ranks
            found[ranks] = [said(result) for result in started.many(["a", "b", "c"])]
    assert found[1] == found[2] == found[4]
    assert [text for text, _ in found[1][0]] == ["a#0", "a#1", "a#2"]


@pytest.fixture(scope="module")
def two_replicas() -> Iterator[Started]:
    """Two talkers of three ranks each."""
    with leaving_nothing(), Started(plan_of(3, replicas=2)) as started:
        yield started


def test_requests_of_several_streams_go_through_ranks(two_replicas: Started) -> None:
    """Longer inputs than one message holds, and pauses, change nothing."""
    params = {"thinker": {"num_outputs": 30, "output_bytes": 60_000}}

    async def run() -> list[OmniResult]:
        works = [two_replicas.omni.run(text, sampling_params=params) for text in "abcdefgh"]
        return list(await asyncio.gather(*works))

    for text, result in zip("abcdefgh", two_replicas.call(run()), strict=True):
        assert said(result) == [(f"{text}#{i}", bytes([i]) * 60_000) for i in range(30)]


@pytest.mark.parametrize("rank", range(3))
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_the_death_of_a_rank_ends_its_replica_and_nothing_else(
    two_replicas: Started, rank: int, *, busy: bool
) -> None:
    """Its requests hear which rank it was, others are served, and the replica comes back."""
    started = two_replicas
    pids, before = ranks_of(started), len(processes())
    started.many(["warm up"] * 4)  # every edge has its memory now
    fds = descriptors(started.pid(0))
    stall = {"talker": {"fail_at": "stall", "fail_step": 1}}
    long = {"thinker": {"delay_steps": 2000}}

    async def run() -> None:
        omni = started.omni
        doomed = []
        if busy:
            while started.in_flight()[1][0] == 0:
                doomed.append(asyncio.ensure_future(omni.run("x", sampling_params=stall)))
                await asyncio.sleep(0)
        other = asyncio.ensure_future(omni.run("other", sampling_params=long))
        await asyncio.sleep(0)
        if started.in_flight()[1][1] == 0:
            other.cancel()
            other = asyncio.ensure_future(omni.run("other", sampling_params=long))
        os.kill(pids[rank], signal.SIGKILL)
        began = time.monotonic()
        await all_gone(pids)
        assert time.monotonic() - began < END_S
        if doomed:
            done, left = await asyncio.wait(doomed, return_when=asyncio.FIRST_COMPLETED)
            error = next(iter(done)).exception()
            told = f"stage `talker` replica `0` rank `{rank}` was killed by SIGKILL"
            assert isinstance(error, StageFailedError)
            assert str(error).startswith(told)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        with contextlib.suppress(StageFailedError, asyncio.CancelledError):
            assert (await other).text == "other#0other#1other#2"
        await started.until_serving()
        texts = [(await omni.run("later")).text for _ in range(4)]
        assert texts == ["later#0later#1later#2"] * 4
        await started.until(lambda: descriptors(started.pid(0)) <= fds)

    started.call(run())
    assert len(processes()) == before


POINTS: Final[Mapping[str, Mapping[str, object]]] = {
    "add": {"kill_at": "add"},
    "append": {"kill_at": "append"},
    "step": {"kill_at": "step"},
    "in the middle": {"kill_at": "step", "fail_step": 1},
    "finish": {"kill_at": "finish"},
}


@pytest.mark.parametrize("rank", LONG_FORM)
@pytest.mark.parametrize("point", POINTS)
def test_a_rank_that_dies_in_a_call_is_named(two_replicas: Started, point: str, rank: int) -> None:
    """Also where others notice first, because a collective fails."""
    params = {"talker": {**POINTS[point], "at_rank": rank}}

    async def run() -> None:
        began = time.monotonic()
        with pytest.raises(StageFailedError) as caught:
            await two_replicas.omni.run("x", sampling_params=params)
        assert time.monotonic() - began < END_S
        told = f"stage `talker` replica `{caught.value.replica}` rank `{rank}` was killed by"
        assert str(caught.value).startswith(f"{told} SIGKILL")
        await two_replicas.until_serving()
        assert (await two_replicas.omni.run("x")).text == "x#0x#1x#2"

    two_replicas.call(run())


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ({"fail_at": "raise", "at_rank": 0}, "rank `0` failed: RuntimeError: the program fails"),
        ({"fail_at": "raise", "at_rank": 2}, "rank `2` failed: RuntimeError: the program fails"),
        ({"fail_at": "memory", "at_rank": 1}, "rank `1` failed: MemoryError: the program has no"),
        ({"fail_at": "exit", "at_rank": 1}, "rank `1` exited with code 3"),
        ({"fail_at": "append", "at_rank": 1}, "rank `0` failed: RuntimeError: rank `1` was not"),
    ],
)
def test_what_a_rank_raises_ends_the_replica(
    two_replicas: Started, program: dict[str, object], told: str
) -> None:
    """Others would wait for it for ever; the first cause is told."""

    async def run() -> None:
        with pytest.raises(StageFailedError) as caught:
            await two_replicas.omni.run("x", sampling_params={"talker": program})
        assert told in str(caught.value)
        await two_replicas.until_serving()

    two_replicas.call(run())


def test_what_fails_at_every_rank_fails_its_request_alone(two_replicas: Started) -> None:
    """No process is lost for it."""
    before = processes()
    for point in ("add", "append", "step"):
        with pytest.raises((StageFailedError, InvalidRequestError), match=f"fails at `{point}`"):
            two_replicas.run(params={"talker": {"fail_at": point}})
    assert two_replicas.run().text == "hi#0hi#1hi#2"
    assert processes() == before


def test_a_cancelled_request_is_forgotten_by_all_ranks(two_replicas: Started) -> None:
    """The next ones are served as ever."""

    async def run() -> None:
        stall = {"talker": {"fail_at": "stall", "fail_step": 1}}
        works = [
            asyncio.ensure_future(two_replicas.omni.run("x", sampling_params=stall))
            for _ in range(6)
        ]
        await asyncio.sleep(0)
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    two_replicas.call(run())
    assert [two_replicas.run().text for _ in range(3)] == ["hi#0hi#1hi#2"] * 3


@pytest.mark.usefixtures("_nothing_left")
@pytest.mark.parametrize("rank", range(2))
def test_a_rank_that_stops_answering_is_found_and_named(
    monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    """SIGSTOP of any rank; the others wait in their collective, and answer."""
    monkeypatch.setattr(monitor, "INTERVAL_S", 0.1)
    with Started(plan_of(2)) as started:
        pids = ranks_of(started)

        async def run() -> None:
            os.kill(pids[rank], signal.SIGSTOP)
            with pytest.raises(StageFailedError, match=f"rank `{rank}` has not answered for"):
                await started.omni.run("x")
            await all_gone(pids)
            await started.until_serving()
            assert (await started.omni.run("x")).text == "x#0x#1x#2"

        started.call(run())


def test_a_replica_of_several_ranks_tells_what_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, as its stage does: three outputs, however many ranks make them."""
    monkeypatch.setattr(monitor, "INTERVAL_S", 0.1)
    with Started(plan_of(2)) as started:
        started.run()

        def told() -> int:
            return started.omni.health().stages[1].replicas[0].trail.load.outputs

        started.call(started.until(lambda: told() > 0))
        assert told() == 3


@pytest.mark.usefixtures("_nothing_left")
def test_a_step_without_end_at_one_rank_ends_the_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody answers, nobody gets on."""
    monkeypatch.setattr(monitor, "INTERVAL_S", 0.1)
    plan = plan_of(2)
    recovery = replace(AT_ONCE, step_timeout=1.0)
    stages = [
        replace(stage, setup=replace(stage.setup, recovery=recovery)) for stage in plan.stages
    ]
    with Started(replace(plan, stages=tuple(stages))) as started:
        hang = {"talker": {"fail_at": "hang", "at_rank": 1}}
        with pytest.raises(StageFailedError, match="has been in one step for"):
            started.run(params=hang)


@pytest.mark.usefixtures("_nothing_left")
@pytest.mark.parametrize("rank", LONG_FORM)
@pytest.mark.parametrize("point", ["construct", "load", "loaded"])
def test_a_rank_that_dies_on_the_way_up_stops_the_start(point: str, rank: int) -> None:
    """With its name."""
    told = f"stage `talker` replica `0` rank `{rank}` was killed by SIGKILL"
    with (
        pytest.raises(StartupError, match=told) as caught,
        Started(plan_of(3, kill_at=point, at_rank=rank)),
    ):
        pass
    assert caught.value.stage == "talker"


@pytest.mark.usefixtures("_nothing_left")
def test_a_rank_that_cannot_load_says_why() -> None:
    """The start fails with what was raised there."""
    told = "stage `talker` replica `0` rank `1` failed: RuntimeError: the program fails at `load`"
    with (
        pytest.raises(StartupError, match=told),
        Started(plan_of(3, fail_at="load", at_rank=1)),
    ):
        pass


@pytest.mark.usefixtures("_nothing_left")
@pytest.mark.parametrize("rank", LONG_FORM)
@pytest.mark.parametrize("point", ["close", "closed"])
def test_a_rank_that_dies_on_the_way_down_stops_nothing(point: str, rank: int) -> None:
    """The system ends."""
    with Started(plan_of(3, kill_at=point, at_rank=rank)) as started:
        pids = ranks_of(started)
        assert started.run().text == "hi#0hi#1hi#2"
    for pid in pids:
        wait_for_exit(pid)


@pytest.mark.usefixtures("_nothing_left")
@pytest.mark.parametrize("spared", range(3))
def test_ranks_that_cannot_be_started_stop_the_start(
    monkeypatch: pytest.MonkeyPatch, spared: int
) -> None:
    """Whichever it is, those before it are gone again."""
    spawn, left = child._spawn, [spared + 1]

    def scarce(*args: object) -> object:
        """One process after the thinker's, and then no more."""
        left[0] -= 1
        if left[0] < 0:
            raise BlockingIOError(11, "no process left")
        return spawn(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(child, "_spawn", scarce)
    with (
        pytest.raises(StartupError, match=r"could not be started: .*no process left"),
        Started(plan_of(3)),
    ):
        pass


@pytest.mark.usefixtures("_nothing_left")
def test_replicas_of_several_ranks_come_and_go() -> None:
    """Like any other; none of their processes stays."""
    with Started(plan_of(2)) as started:
        before = processes()
        started.call(started.omni.scale("talker", 2))
        assert len(processes()) == len(before) + 2
        assert [started.run().text for _ in range(4)] == ["hi#0hi#1hi#2"] * 4
        started.call(started.omni.scale("talker", 1))
        assert processes() == before
