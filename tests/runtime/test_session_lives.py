"""How full-duplex sessions end over stages that run, and what is left of them: nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from stagemesh.errors import (
    ClosedError,
    DeadlineError,
    DiagnosticError,
    InvalidRequestError,
    SessionRefusedError,
    StageFailedError,
)
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.plan.values import Plan
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.outputs import StageState
from stagemesh.runtime.session import Session, SessionOver
from tests.runtime import leaks
from tests.runtime.started import Started, Watch
from tests.runtime.talking import duplex_plan, said, talking

pytestmark = pytest.mark.slow

PAIRS = [(0, 0), (1, 1)]
STALL = {"stage1": {"fail_at": "stall"}}


def recovering(plan: Plan) -> Plan:
    """The same, but replicas come back at once."""
    recovery = RecoveryPlan(restart_delay=0, max_restarts=100)
    stages = [
        replace(stage, setup=replace(stage.setup, recovery=recovery)) for stage in plan.stages
    ]
    return replace(plan, stages=tuple(stages))


def states(omni: AsyncOmni) -> dict[str, int]:
    """How many sessions do what."""
    return {name: count for name, count in omni.measures().sessions.states.items() if count}


async def stalled(session: Session) -> asyncio.Task[object]:
    """A turn that hangs in the last stage until it is cancelled."""
    watch = Watch()
    running = session.submit("a", sampling_params=STALL, on_progress=watch)
    await watch.until("stage0", StageState.FINISHED)
    return asyncio.ensure_future(running.result())


def test_the_death_of_a_replica_closes_its_sessions_idle_ones_too() -> None:
    """Each hears stage, replica and cause; the other group goes on, and the dead one comes back."""
    before = leaks.host()
    with Started(recovering(talking(duplex_plan(PAIRS), (2, 2)))) as started:

        async def work(omni: AsyncOmni) -> None:
            sessions = [await omni.open_session() for _ in range(4)]
            idle, other, busy, _ = sessions
            assert [session.group for session in sessions] == [0, 1, 0, 1]
            turn = await stalled(busy)
            assert await said(other, "a") == [("a", 1)]
            os.kill(started.pid(1, 0), signal.SIGKILL)
            for session in (idle, busy):
                end = await session.ended()
                assert end.over is SessionOver.FAILED
                assert isinstance(end.error, StageFailedError)
                assert (end.error.stage, end.error.replica) == ("stage1", 0)
                assert "was killed by SIGKILL" in str(end.error)
                assert end.error.retryable
                await session.cleaned()
                with pytest.raises(ClosedError, match="SIGKILL"):
                    session.submit("b")
            (error,) = await asyncio.gather(turn, return_exceptions=True)
            assert isinstance(error, StageFailedError)
            assert await said(other, "a") == [("a", 2)]
            assert states(omni) == {"open": 2}
            with pytest.raises(SessionRefusedError, match="replica_capacity_exhausted"):
                await omni.open_session()
            await started.until_serving()
            again = await omni.open_session()
            assert again.group == 0
            assert await said(again, "a") == [("a", 1)]
            assert dict(omni.measures().sessions.ended) == {"failed": 2}
            for session in (*sessions, again):
                session.close()
            for session in (*sessions, again):
                await session.cleaned()
            assert states(omni) == {}

        started.call(work(started.omni))
    leaks.wait_until_as(before)


def test_a_session_of_no_group_dies_with_the_replicas_that_it_is_on() -> None:
    """Also under `legacy`, where its route was chosen by routers."""
    plan = talking(duplex_plan([], cap=None), (1, 2))
    with Started(recovering(plan)) as started:

        async def work(omni: AsyncOmni) -> None:
            one, other = await omni.open_session(), await omni.open_session()
            os.kill(started.pid(1, one.replicas["stage1"]), signal.SIGKILL)
            assert (await one.ended()).over is SessionOver.FAILED
            assert await said(other, "a") == [("a", 1)]
            other.close()

        started.call(work(started.omni))


def test_an_opening_that_fails_half_way_gives_everything_back_once() -> None:
    """The stages that had opened it close it again: else the second try would fail there."""
    plan = talking(duplex_plan([(0, 0)], cap=1), (1, 1), {}, {"fail_at": "open_session"})
    with Started(plan) as started:

        async def work(omni: AsyncOmni) -> None:
            for _ in range(3):
                with pytest.raises(StageFailedError, match="cannot open a session") as failed:
                    await omni.open_session()
                assert (failed.value.stage, failed.value.replica) == ("stage1", 0)
                assert failed.value.retryable
                await started.until(lambda: not states(omni))
            assert omni.measures().sessions.opened == 0
            assert dict(omni.measures().sessions.ended) == {"failed": 3}

        started.call(work(started.omni))


def test_a_replica_that_dies_while_sessions_open_fails_their_opening() -> None:
    """And gives the place back."""
    plan = talking(duplex_plan([(0, 0)], cap=1), (1, 1), {}, {"kill_at": "open_session"})
    with Started(recovering(plan)) as started:

        async def work(omni: AsyncOmni) -> None:
            with pytest.raises(StageFailedError, match="SIGKILL") as failed:
                await omni.open_session()
            assert (failed.value.stage, failed.value.replica) == ("stage1", 0)
            await started.until(lambda: not states(omni))

        started.call(work(started.omni))


def test_who_stops_waiting_for_an_opening_holds_nothing() -> None:
    """Neither by a time limit nor by a cancellation."""
    plan = talking(duplex_plan([(0, 0)], cap=1), (1, 1))
    with Started(plan) as started:

        async def work(omni: AsyncOmni) -> None:
            with pytest.raises(DeadlineError, match="not opened after 1e-09 s"):
                await omni.open_session(timeout_s=1e-9)
            await started.until(lambda: not states(omni))
            opening = asyncio.ensure_future(omni.open_session())
            await started.until(lambda: states(omni) == {"opening": 1} or opening.done())
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            if not opening.cancelled():  # it was faster than the look at it
                opening.result().close()
            await started.until(lambda: not states(omni))
            with pytest.raises(DiagnosticError):
                await omni.open_session(timeout_s=0)

        started.call(work(started.omni))


def test_closing_cancels_the_turn_that_runs_and_those_that_wait() -> None:
    """The stages are free of them before the session is clean."""
    with Started(talking(duplex_plan([(0, 0)]), (1, 1))) as started:

        async def work(omni: AsyncOmni) -> None:
            session = await omni.open_session()
            turns = [await stalled(session)]
            turns += [asyncio.ensure_future(session.submit("b").result()) for _ in range(2)]
            session.close()
            for error in await asyncio.gather(*turns, return_exceptions=True):
                assert isinstance(error, ClosedError)
                assert str(error) == "the session was closed"
            await session.cleaned()
            await started.until(lambda: not any(map(any, started.in_flight().values())))
            assert states(omni) == {}

        started.call(work(started.omni))


def test_a_turn_that_is_cancelled_leaves_its_session_where_it_is() -> None:
    """The next turn begins, on the same replicas, with what the stages have kept."""
    with Started(talking(duplex_plan(PAIRS), (2, 2), {"num_outputs": 1})) as started:

        async def work(omni: AsyncOmni) -> None:
            session = await omni.open_session()
            assert await said(session, "a") == [("a#0", 1)]
            watch = Watch()
            running = session.submit("b", sampling_params=STALL, on_progress=watch)
            behind = asyncio.ensure_future(said(session, "c"))
            await watch.until("stage0", StageState.FINISHED)
            running.close()
            assert await behind == [("abc#0", 3)]
            session.close()

        started.call(work(started.omni))


def test_turns_run_one_after_another_and_few_of_them_wait() -> None:
    """What is too much is refused, and may be tried again; what fits nowhere may not."""
    duplex = duplex_plan([(0, 0)], max_pending_turns_per_session=2)
    small = replace(duplex, max_pending_input_bytes_per_session=1000)
    with Started(talking(small, (1, 1))) as started:

        async def work(omni: AsyncOmni) -> None:
            session = await omni.open_session()
            turn = await stalled(session)
            waiting = [session.submit("b"), session.submit("c" * 10)]
            with pytest.raises(SessionRefusedError, match="input_backpressure: `2` turns") as full:
                session.submit("d")
            assert (full.value.reason, full.value.retryable) == ("input_backpressure", True)
            waiting.pop().close()
            with pytest.raises(SessionRefusedError, match="input_backpressure: `264` bytes"):
                session.submit("d" * 70)
            with pytest.raises(InvalidRequestError, match="longer than the `1000`"):
                session.submit("e" * 1000)
            with pytest.raises(InvalidRequestError, match="is still running"):
                session.submit("f", request_id=waiting[0].name)
            assert dict(omni.measures().sessions.refused) == {"input_backpressure": 2}
            assert omni.measures().traffic.num_queued == 1
            turn.cancel()
            session.close()

        started.call(work(started.omni))


def test_a_stage_that_fails_to_clean_up_is_asked_again_and_the_place_is_held_until_then() -> None:
    """The cleanup is not forgotten."""
    duplex = duplex_plan([(0, 0)], cap=1, reaper_interval_s=0.05)
    with Started(talking(duplex, (1, 1), {}, {"fail_at": "close_session"})) as started:

        async def work(omni: AsyncOmni) -> None:
            session = await omni.open_session()
            session.close()
            assert states(omni) == {"closing": 1}
            with pytest.raises(SessionRefusedError):
                await omni.open_session()
            await session.cleaned()
            again = await omni.open_session()
            again.close()
            await again.cleaned()

        started.call(work(started.omni))


def test_a_session_that_its_user_left_waits_for_the_grace_and_no_longer() -> None:
    """Who is back in time finds it as it was; an absent one is not called idle."""
    duplex = duplex_plan([(0, 0)], disconnect_grace_s=0.2, reaper_interval_s=0.02)
    with Started(talking(duplex, (1, 1))) as started:

        async def work(omni: AsyncOmni) -> None:
            back, gone = await omni.open_session(), await omni.open_session()
            back.disconnect()
            gone.disconnect()
            back.resume()
            end = await gone.ended()
            assert (end.over, str(end.error)) == (
                SessionOver.DISCONNECTED,
                "the session was left for 0.2 s",
            )
            assert await said(back, "a") == [("a", 1)]
            back.close()
            back.disconnect()
            await back.cleaned()
            back.resume()

        started.call(work(started.omni))


def test_a_silent_session_ends_unless_something_is_computed_for_it() -> None:
    """A turn that takes long is no silence."""
    duplex = duplex_plan([(0, 0)], idle_ttl_s=0.1, reaper_interval_s=0.02)
    with Started(talking(duplex, (1, 1))) as started:

        async def work(omni: AsyncOmni) -> None:
            busy, idle = await omni.open_session(), await omni.open_session()
            turn = await stalled(busy)
            end = await idle.ended()
            assert (end.over, str(end.error)) == (
                SessionOver.IDLE,
                "the session was idle for 0.1 s",
            )
            assert busy.end is None
            turn.cancel()
            busy.close()

        started.call(work(started.omni))


def test_the_end_of_the_system_ends_its_sessions() -> None:
    """Nobody waits for anything then."""

    async def work() -> None:
        async with AsyncOmni(talking(duplex_plan([(0, 0)]), (1, 1))) as omni:
            session = await omni.open_session()
            turn = await stalled(session)
        end = await session.ended()
        assert end.over is SessionOver.SHUTDOWN
        await session.cleaned()
        (error,) = await asyncio.gather(turn, return_exceptions=True)
        assert isinstance(error, ClosedError)
        with pytest.raises(ClosedError):
            session.submit("a")
        with pytest.raises(ClosedError):
            await omni.open_session()

    before = leaks.host()
    asyncio.run(work())
    leaks.wait_until_as(before)
