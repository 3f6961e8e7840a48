"""Full-duplex sessions over stages that run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from stagemesh.errors import ClosedError, SessionModeError, SessionRefusedError
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.session import SessionOver
from tests.runtime.started import Started
from tests.runtime.talking import SHARED, duplex_plan, said, talking

STILL = {"opening": 0, "open": 0, "closing": 0}


@pytest.fixture(scope="module")
def shared() -> Iterator[Started]:
    """Two groups that share the replica of the second stage, two sessions a replica."""
    plan = talking(duplex_plan(SHARED), (2, 1), {"num_outputs": 1})
    with Started(plan) as started:
        yield started


@pytest.fixture
def system(shared: Started) -> Iterator[Started]:
    """The shared one; every test leaves it without sessions."""
    yield shared
    shared.call(shared.until(lambda: dict(shared.omni.measures().sessions.states) == STILL))


def test_the_worked_check_of_shared_counters_over_a_running_system(system: Started) -> None:
    """A, then B although it shares a replica, then nobody, although the first stage has room."""

    async def work(omni: AsyncOmni) -> None:
        first = await omni.open_session()
        second = await omni.open_session()
        assert {first.group, second.group} == {0, 1}
        assert first.replicas["stage1"] == second.replicas["stage1"] == 0
        assert first.replicas["stage0"] != second.replicas["stage0"]
        with pytest.raises(SessionRefusedError, match="replica_capacity_exhausted") as refused:
            await omni.open_session()
        assert refused.value.retryable
        assert refused.value.reason == "resource_exhausted"
        first.close()
        await first.cleaned()
        third = await omni.open_session()
        assert third.group == first.group
        second.close()
        third.close()

    system.call(work(system.omni))


def test_every_stage_keeps_a_session_from_turn_to_turn(system: Started) -> None:
    """The first stage has heard all earlier turns; a session beside it has not."""

    async def work(omni: AsyncOmni) -> None:
        one, other = await omni.open_session(), await omni.open_session()
        assert await said(one, "a") == [("a#0", 1)]
        assert await said(other, "x") == [("x#0", 1)]
        assert await said(one, "b") == [("ab#0", 2)]
        assert await said(one, "c") == [("abc#0", 3)]
        assert await said(other, "y") == [("xy#0", 2)]
        one.close()
        other.close()

    system.call(work(system.omni))


def test_a_session_that_was_closed_takes_no_turns(system: Started) -> None:
    """Whoever waits for its end hears why, and closing it again does nothing."""

    async def work(omni: AsyncOmni) -> None:
        session = await omni.open_session()
        session.close()
        session.close()
        end = await session.ended()
        assert end.over is SessionOver.CLIENT
        with pytest.raises(ClosedError, match="the session is over: the session was closed"):
            session.submit("a")
        await session.cleaned()

    system.call(work(system.omni))


def test_requests_are_turns_of_sessions_where_there_are_sessions(system: Started) -> None:
    """One outside would take a place that nobody counts."""

    async def work(omni: AsyncOmni) -> None:
        with pytest.raises(SessionModeError, match="open one first"):
            await omni.run("a")

    system.call(work(system.omni))


def test_there_are_no_sessions_where_requests_take_turns(streaming: Started) -> None:
    """It says so."""

    async def work(omni: AsyncOmni) -> None:
        with pytest.raises(SessionModeError, match="has no sessions"):
            await omni.open_session()

    streaming.call(work(streaming.omni))


def test_a_frontend_opens_sessions_in_its_own_groups() -> None:
    """Within its own part of the limit, and with the text of the global one."""
    duplex = duplex_plan([(0, 0), (1, 1)], sessions=2, cap=1, frontends=2)
    plan = talking(duplex, (2, 2))

    async def work() -> None:
        async with AsyncOmni(plan, frontend=1) as omni:
            session = await omni.open_session()
            assert session.group == 1
            assert session.replicas == {"stage0": 1, "stage1": 1}
            with pytest.raises(SessionRefusedError, match="duplex_session_capacity_exhausted"):
                await omni.open_session()

    asyncio.run(work())


def test_a_legacy_session_is_routed_once_and_stays() -> None:
    """By the policy of each stage; its turns go where it is."""
    plan = talking(duplex_plan([], cap=None), (2, 2))

    async def work(omni: AsyncOmni) -> None:
        first, second = await omni.open_session(), await omni.open_session()
        assert (first.group, second.group) == (None, None)
        assert first.replicas != second.replicas
        for number in range(1, 4):
            assert await said(first, "a") == [("a", number)]
            assert await said(second, "a") == [("a", number)]
        first.close()
        second.close()
        await first.cleaned()
        await second.cleaned()

    with Started(plan) as started:
        started.call(work(started.omni))
