"""Nonsense on every socket, and no descriptors left: who is to blame, and who lives on."""

from __future__ import annotations

import asyncio
import itertools
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from stagemesh.errors import StageFailedError, StartupError
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.plan.values import Plan
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.testing.connector_conformance import open_fds
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.started import Started

pytestmark = pytest.mark.slow

AT_ONCE = RecoveryPlan(restart_delay=0, max_restarts=100)
GIANTS = {"thinker": {"output_bytes": 700_000}}
"""Outputs that travel as descriptors."""


def recovering(bridge: str | None = None, **env: str) -> Plan:
    """Three stages that come back at once; the first has an environment."""
    thinker, *others = (replace(stage, recovery=AT_ONCE) for stage in three_stages())
    return fake_plan([replace(thinker, env=env), *others], bridge=bridge)


def test_nonsense_on_every_socket_ends_who_said_it_and_nobody_else() -> None:
    """Its request fails with its name; its neighbours are the processes that they were."""
    plan = recovering("tests.runtime.plugins:GarbageBridge", TEST_GARBAGE="1")
    with Started(plan) as started:

        async def run() -> None:
            before = started.omni.pids
            with pytest.raises(StageFailedError, match="failed: ") as caught:
                await started.omni.run("garbage")
            assert (caught.value.stage, caught.value.replica) == ("thinker", 0)
            await started.until_serving()
            changed = {
                where.stage for where, pid in started.omni.pids.items() if pid != before[where]
            }
            assert changed == {0}
            assert (await started.omni.run("hi")).text == "hi#0hi#1hi#2"

        started.call(run())


@contextmanager
def no_more_descriptors(pid: int = 0, spare: int = 0) -> Iterator[None]:
    """A process can open `spare` more, until the block ends."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    own = Path(f"/proc/{pid or 'self'}/fd")
    taken = {int(fd.name) for fd in own.iterdir()}
    free = (number for number in itertools.count() if number not in taken)
    limit = next(itertools.islice(free, spare, None))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        if not pid or own.exists():
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("spare", [0, 1, 5, 9, 11])
def test_a_start_without_descriptors_fails_whole(spare: int) -> None:
    """Wherever they run out: the error says so, and everything is closed again."""
    before = open_fds()

    async def run() -> None:
        omni = AsyncOmni(fake_plan(three_stages()))
        with no_more_descriptors(spare=spare), pytest.raises(StartupError, match="open files"):
            await omni.start()
        await omni.close()

    asyncio.run(run())
    assert open_fds() == before


def test_a_producer_without_descriptors_fails_the_request_and_lives_on() -> None:
    """What cannot be sent is an error of that request; the next one finds descriptors again."""
    with Started(recovering()) as started:

        async def run() -> None:
            pid = started.pid(0)
            with no_more_descriptors(pid), pytest.raises(StageFailedError, match="open files") as e:
                await started.omni.run("hi", sampling_params=GIANTS)
            assert e.value.stage == "thinker"
            assert (await started.omni.run("hi", sampling_params=GIANTS)).text == "hi#0hi#1hi#2"
            assert started.pid(0) == pid

        started.call(run())


def test_a_consumer_without_descriptors_is_to_blame_itself() -> None:
    """It cannot take what it was sent, says so, and comes back; its producer is left alone."""
    with Started(recovering()) as started:

        async def run() -> None:
            before = started.omni.pids
            with no_more_descriptors(started.pid(1)):
                with pytest.raises(StageFailedError, match="no descriptors left") as caught:
                    await started.omni.run("hi", sampling_params=GIANTS)
                assert caught.value.stage == "talker"
                await started.until_serving()
            changed = {
                where.stage for where, pid in started.omni.pids.items() if pid != before[where]
            }
            assert changed == {1}
            assert (await started.omni.run("hi", sampling_params=GIANTS)).text == "hi#0hi#1hi#2"

        started.call(run())
