"""Stages that are fed with whole outputs are chosen when these are there."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from stagemesh.connectors.shared_memory import CONNECTOR, SharedMemoryOptions
from stagemesh.errors import StageFailedError
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.runtime.edge import Connector
from stagemesh.runtime.hints import RouteHints
from stagemesh.runtime.inbox import Add, Append, Forget
from stagemesh.runtime.messages import (
    NOTHING,
    Ack,
    Chunk,
    Failed,
    Key,
    Submit,
    Targets,
    Whole,
)
from stagemesh.spec.payload import Payload
from stagemesh.testing.fake_plan import FakeStage, fake_plan
from tests.runtime.desk import KEY, Desk, a_desk, finished
from tests.runtime.started import Started

SENDER = Connector(spec=CONNECTOR, options=SharedMemoryOptions()).sender()
TOLD = Targets(key=KEY, targets={1: (0, 0)}, turn=9)


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A desk with one input, and one output that it is told of later."""
    for desk in a_desk():
        desk.requests.submit(Submit(key=KEY, params={}, targets={}), {}, (1,))
        yield desk


def test_what_is_whole_waits_until_the_stage_asks_and_is_told(desk: Desk) -> None:
    """The engine works for that stage all the while; the request ends when all has gone."""
    (add,) = desk.commands()
    assert isinstance(add, Add)
    assert add.targets == (1,)
    desk.say()
    desk.say(last=True)
    assert desk.told == [Whole(key=KEY)]
    desk.over(finished())
    assert desk.told == [Whole(key=KEY)]
    assert desk.downstream.chunks() == []
    desk.requests.targets(TOLD, {1: desk.out})
    assert [(chunk.last, chunk.turn) for chunk in desk.downstream.chunks()] == [
        (False, 9),
        (True, 9),
    ]
    assert desk.told == [Whole(key=KEY), finished()]


def test_who_is_told_before_it_asks_does_not_ask(desk: Desk) -> None:
    """Another stage has ended that feeds the same one."""
    desk.requests.targets(TOLD, {1: desk.out})
    desk.say(last=True)
    desk.over(finished())
    assert desk.told == [finished()]


def test_what_finds_no_room_then_is_waited_for(desk: Desk) -> None:
    """As everywhere."""
    for _ in range(5):
        desk.say()
    desk.over(finished())
    desk.requests.targets(TOLD, {1: desk.out})
    assert desk.out.num_waiting == 1
    assert desk.told == [Whole(key=KEY)]
    desk.out.acknowledged([desk.downstream.chunks()[0].number])
    assert desk.told == [Whole(key=KEY), finished()]


def test_a_target_that_is_gone_fails_the_request(desk: Desk) -> None:
    """It has died while this stage was told of it."""
    desk.say(last=True)
    desk.over(finished())
    desk.requests.targets(TOLD, None)
    assert desk.told[1:] == [Failed(key=KEY, invalid=False, message="its next stage is gone")]


def test_what_is_told_of_others_is_nothing(desk: Desk) -> None:
    """It was cancelled, or is another request of that name."""
    desk.requests.targets(Targets(key=Key(rid="r", epoch=4), targets={}, turn=9), None)
    desk.say(last=True)
    desk.requests.cancel(KEY)
    desk.requests.targets(TOLD, {1: desk.out})
    assert [type(command) for command in desk.commands()] == [Add, Forget]
    assert desk.downstream.sent == []
    assert desk.out.idle


def test_early_is_what_comes_before_its_turn(desk: Desk) -> None:
    """Requests of later epochs may have come before it; what has gone by its turn is given back."""
    one, two = Key(rid="one", epoch=6), Key(rid="two", epoch=7)
    desk.requests.submit(Submit(key=two, params={}, targets={}, turn=12), {}, (1,))
    for number, (key, turn) in enumerate(((one, 13), (Key(rid="gone", epoch=3), 11))):
        desk.requests.chunk(desk.into, chunk_of(key, number, turn), NOTHING)
    assert [type(message) for message, _ in desk.answers.sent] == [Ack]
    desk.commands()
    desk.requests.submit(Submit(key=one, params={}, targets={}, turn=13), {}, (1,))
    add, append = desk.commands()
    assert isinstance(add, Add)
    assert isinstance(append, Append)
    assert append.key == one


def chunk_of(key: Key, number: int, turn: int) -> Chunk:
    """An empty last chunk."""
    ticket = SENDER.put(Payload())
    assert ticket is not None
    return Chunk(key=key, seq=0, number=number, body=ticket.body, last=True, turn=turn)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that stands still meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def has_processes(started: Started, num: int) -> bool:
    """Whether so many live."""
    return len(started.omni.pids) == num


def line(*stages: FakeStage) -> Started:
    """Stages that hand over whole outputs."""
    return Started(fake_plan(stages, chunked=False))


@pytest.mark.slow
def test_requests_find_their_way_where_each_stage_is_chosen_late() -> None:
    """Through a fork that joins again, with several replicas of everything."""
    started = line(
        FakeStage(name="front", args={"num_outputs": 2}, replicas=2),
        FakeStage(name="side", replicas=2, policy="least_queue"),
        FakeStage(name="join", args={"num_outputs": 1}, replicas=2, sources=(0, 1), final="text"),
    )
    with started:
        for number, result in enumerate(started.many([f"q{number}" for number in range(12)])):
            text = result.text or ""
            assert all(text.count(f"q{number}#{part}") == 2 for part in range(2))
            assert [part.stage for part in result.report] == ["front", "side", "join"]
        assert all(not any(counts) for counts in started.in_flight().values())


@pytest.mark.slow
def test_the_idlest_replica_is_that_of_the_moment() -> None:
    """Whoever was admitted before, and goes where it is busy meanwhile, is not sent there."""
    started = line(
        FakeStage(name="front", args={"num_outputs": 1}, replicas=2),
        FakeStage(name="back", replicas=2, policy="least_queue", final="text"),
    )
    with started:

        async def work() -> None:
            stall = {"back": {"fail_at": "stall"}}
            busy = started.omni.submit("a", sampling_params=stall)
            await started.until(lambda: started.in_flight()[1] == (1, 0))
            with stopped(started.pid(0, 1)):
                late = started.omni.submit("b")
                assert started.in_flight()[0][1] == 1
                assert started.in_flight()[1] == (1, 0)
                other = started.omni.submit("c", sampling_params=stall)
                await started.until(lambda: started.in_flight()[1] == (1, 1))
                busy.close()
                await started.until(lambda: started.in_flight()[1] == (0, 1))
            result = await late.result()
            assert result.report[-1].replicas == (0,)
            other.close()

        started.call(work())
        started.settle()


@pytest.mark.slow
def test_a_stage_may_die_before_it_is_chosen() -> None:
    """Whoever has not come to it yet goes to another one; without one it fails when it comes."""
    never = RecoveryPlan(restart="never")
    started = line(
        FakeStage(name="front", args={"num_outputs": 1}),
        FakeStage(name="back", replicas=2, final="text", recovery=never),
    )
    with started:

        async def work() -> None:
            for left in (1, 0):
                with stopped(started.pid(0)):
                    running = started.omni.submit("a")
                    os.kill(started.pid(1, 1 - left), signal.SIGKILL)
                    await started.until(partial(has_processes, started, 1 + left))
                if left:
                    assert (await running.result()).text == "a#0"
            with pytest.raises(StageFailedError, match="no replica left") as caught:
                await running.result()
            assert caught.value.retryable

        started.call(work())


@pytest.mark.slow
def test_companions_are_served_together_where_they_come_to_late() -> None:
    """Whoever comes first."""
    started = line(
        FakeStage(name="front", args={"num_outputs": 1}, replicas=1),
        FakeStage(name="back", replicas=3, final="text"),
    )
    with started:

        async def work() -> None:
            for _ in range(3):
                slow = {"front": {"delay_steps": 200}}
                parent = started.omni.submit("p", request_id="parent", sampling_params=slow)
                children = [
                    started.omni.submit("c", route=RouteHints(follows="parent")) for _ in range(2)
                ]
                results = await asyncio.gather(
                    parent.result(), *(child.result() for child in children)
                )
                assert len({result.report[-1].replicas for result in results}) == 1

        started.call(work())
        started.settle()
