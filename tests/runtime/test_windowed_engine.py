"""A stage serves the oldest streams that can go on, and the others wait in the line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagemesh.engines._fake import FakeEngine
from stagemesh.engines.fake import FakeOptions
from stagemesh.errors import StageFailedError
from stagemesh.runtime.core.credits import Limits
from stagemesh.runtime.running import Running
from stagemesh.runtime.shapes import streams_of
from stagemesh.runtime.windowed_engine import WindowedEngine
from stagemesh.spec.engine import Engine, EngineRequest, Finish
from stagemesh.spec.payload import Payload
from stagemesh.testing.engine_conformance import EngineCase, EngineConformance
from stagemesh.testing.engine_context import engine_context
from stagemesh.testing.fake_plan import FakeStage, fake_plan, three_stages
from tests.engines.test_conformance import FakeCase
from tests.runtime.line import Line
from tests.runtime.started import Started
from tests.runtime.test_back_pressure import BYTES, NUM, UNREAD, check_idle, read_all

NAMES = "abcd"


class OneAtATime(FakeCase):
    """The fake engine behind a window of one stream."""

    def make(self) -> Engine:
        """Wrap it."""
        return WindowedEngine(super().make(), 1)


@pytest.mark.slow
class TestWindowed(EngineConformance):
    """With the window it still is an engine."""

    @pytest.fixture
    def case(self) -> EngineCase:
        """Programmed outputs."""
        return OneAtATime()


class Served:
    """Streams that echo their inputs, of which some are served at a time."""

    def __init__(self, size: int, num_outputs: int | None = None) -> None:
        """Begin with four of them."""
        self.inner = FakeEngine(engine_context(args=FakeOptions(num_outputs=num_outputs)))
        self.engine = WindowedEngine(self.inner, size)
        for name in NAMES:
            self.engine.add(EngineRequest(request_id=name))

    def give(self, names: str, *, last: bool = False) -> None:
        """One input for each of these."""
        for name in names:
            self.engine.append(name, Payload(meta={"text": name}), last=last)

    def step(self) -> str:
        """Whose output a step gives."""
        if not self.engine.has_work():
            return ""
        return "".join(output.request_id for output in self.engine.step())

    def rest(self) -> list[str]:
        """Whose outputs all further steps give."""
        found = []
        while served := self.step():
            found.append(served)
        return found


def test_the_line_is_served_by_age() -> None:
    """Who ends gives its place to the next."""
    served = Served(2)
    served.give("dcba", last=True)
    assert served.rest() == ["ab", "cd"]


def test_a_place_belongs_to_a_stream_for_as_long_as_it_can_go_on() -> None:
    """The others get nothing meanwhile."""
    served = Served(1, num_outputs=3)
    served.give("ab", last=True)
    assert served.rest() == ["a", "a", "a", "b", "b", "b"]


@pytest.mark.parametrize("end", ["cancel", "pause"])
def test_who_is_cancelled_or_paused_makes_place(end: str) -> None:
    """One that is paused goes on before the younger ones when it may, though not before older."""
    served = Served(1, num_outputs=2)
    served.give("abc", last=True)
    assert served.step() == "a"
    if end == "cancel":
        served.engine.cancel("a")
        assert served.rest() == ["b", "b", "c", "c"]
        return
    served.engine.pause("a")
    served.engine.pause("a")
    assert served.step() == "b"
    served.engine.pause("c")
    served.engine.resume("a")
    assert served.rest() == ["a", "b"]
    served.engine.resume("c")
    assert served.rest() == ["c", "c"]


def test_who_fails_makes_place() -> None:
    """Its failure is told when its turn has come."""
    served = Served(1, num_outputs=2)
    for name, params in (("e", {"fail_at": "step", "fail_step": 1}), ("f", {})):
        served.engine.add(EngineRequest(request_id=name, params=params))
    served.give("ef", last=True)
    assert served.rest() == ["e", "e", "f", "f"]


def test_who_waits_for_input_makes_place_and_comes_back_by_its_age() -> None:
    """A user who does not read upstream would otherwise stop everybody here."""
    served = Served(1)
    served.give("abc")
    served.give("bc", last=True)
    assert [served.step(), served.step()] == ["a", "b"]
    served.give("a", last=True)
    assert served.rest() == ["a", "b", "c", "c"]


def test_a_held_stream_wants_no_input() -> None:
    """So whoever sends it is stopped as well, as by any stage that is behind."""
    served = Served(1)
    served.give("ab")
    assert served.engine.has_work()
    assert not served.engine.wants_input("b")
    assert served.engine.wants_input("c")
    assert served.engine.call("echo", {"a": 1}) == {"a": 1}
    served.engine.load()
    served.engine.close()
    assert not served.engine.has_work()


WHAT = st.sampled_from(["give", "last", "pause", "resume", "cancel", "step", "look"])


@given(st.integers(1, 3), st.lists(st.tuples(WHAT, st.sampled_from(NAMES)), max_size=60))
def test_whatever_happens_the_oldest_are_served(size: int, doings: list[tuple[str, str]]) -> None:
    """At every look exactly the oldest of those that could go on can, and in the end all are."""
    served = Served(size)
    engine = served.engine
    inputs = dict.fromkeys(NAMES, 0)
    paused, over = set[str](), set[str]()
    for what, name in doings:
        match what:
            case "give" | "last" if name not in over:
                served.give(name, last=what == "last")
                inputs[name] += 1
                over |= {name} if what == "last" else set()
            case "pause":
                engine.pause(name)
                paused.add(name)
            case "resume":
                engine.resume(name)
                paused.discard(name)
            case "cancel":
                engine.cancel(name)
                over.add(name)
                inputs[name] = 0
            case "step" | "look":
                could = [one for one in NAMES if inputs[one] and one not in paused][:size]
                assert engine.has_work() is bool(could)
                outputs = engine.step() if what == "step" else []
                assert [output.request_id for output in outputs] == (
                    could if what == "step" else []
                )
                for output in outputs:
                    inputs[output.request_id] -= len(output.payloads)
                    assert (output.finish is Finish.STOP) is (
                        output.request_id in over and not inputs[output.request_id]
                    )
    for name in NAMES:
        engine.resume(name)
        if name not in over:
            served.give(name, last=True)
    served.rest()
    assert not any(served.inner.has_work() for _ in NAMES)


def with_window(work: Callable[[Line], None], size: int, delay_steps: int = 0) -> None:
    """Run `work` on two stages, of which the second serves `size` streams at a time."""

    async def run() -> None:
        line = Line(NUM, BYTES, UNREAD, Limits(), delay_steps, size)
        try:
            work(line)
        finally:
            line.close()

    asyncio.run(run())


def test_others_run_on_beside_many_who_do_not_read() -> None:
    """They hold no place of the window, and nothing that the others need."""

    def work(line: Line) -> None:
        slow = [line.submit(f"slow{number}") for number in range(20)]
        line.rest()
        quick = line.submit("quick")
        while quick not in line.ended:
            line.rest()
            line.read(quick)
        assert line.ended[quick]
        read_all(line)
        assert all(len(line.got[key]) == NUM for key in slow)
        check_idle(line)

    with_window(work, 1)


def test_streams_beyond_the_window_are_stopped_where_they_come_from() -> None:
    """While the second stage serves one, the first is ahead with the others by their windows."""

    def work(line: Line) -> None:
        keys = [line.submit(name) for name in NAMES]
        for _ in range(2 * NUM):
            line.step(4)
            while line.wires[0].move() or line.wires[1].move():
                pass
            line.step(5)
        served = [line.running[key].unread_bytes + len(line.wires[2].sent) for key in keys]
        assert served[0] > 0
        assert [line.came[key] for key in keys[1:]] == [1 + Limits().chunks] * 3
        assert not line.first.engine.has_work()
        read_all(line)
        assert all(len(line.got[key]) == NUM for key in keys)
        check_idle(line)

    with_window(work, 1, delay_steps=100)


@settings(max_examples=20)
@given(st.integers(1, 2), st.lists(st.integers(min_value=0, max_value=63), max_size=300))
def test_in_whatever_order_things_happen_nothing_is_lost(size: int, choices: list[int]) -> None:
    """Whoever reads on gets everything in order; nothing stays behind, and nothing stands still."""

    def work(line: Line) -> None:
        keys = [line.submit(name) for name in "abc"]
        for choice in choices:
            what, which = divmod(choice, 8)
            key = keys[what % 3]
            if which == 6:
                line.read(key)
            elif which == 7 and what == 0:
                line.leave(key)
            else:
                line.step(which)
        read_all(line)
        for key in keys:
            texts = [output.payload.meta["text"] for output in line.got[key]]
            assert texts == [f"hi#{number}" for number in range(len(texts))]
            assert len(texts) == NUM or not line.ended[key]
        check_idle(line)

    with_window(work, size)


def test_the_window_holds_where_chunks_come_in() -> None:
    """Not where requests come whole, nor where they come from the caller."""
    for chunked, sizes in ((True, [0, 2, 2]), (False, [0, 0, 0])):
        plan = replace(fake_plan(three_stages(), chunked=chunked), active_stream_window=2)
        assert [streams_of(plan, stage) for stage in plan.stages] == sizes
    plan = fake_plan(three_stages())
    assert [streams_of(plan, stage) for stage in plan.stages] == [0, 0, 0]


@pytest.mark.slow
def test_a_running_pipeline_serves_one_stream_after_the_other() -> None:
    """Whose inputs are all there comes to its end before the next begins, in every stage."""
    stages = [
        FakeStage(name="thinker", args={"num_outputs": 3}),
        FakeStage(name="talker", args={"num_outputs": 3, "delay_steps": 20}),
        FakeStage(name="vocoder", final="data"),
    ]
    plan = replace(fake_plan(stages), active_stream_window=1)
    with Started(plan) as started:

        async def work() -> None:
            order: list[str] = []

            async def read(running: Running) -> None:
                async for _ in running:
                    order.append(running.name)  # noqa: PERF401  shared by all

            slow = started.omni.submit("slow")
            failing = started.omni.submit(
                "failing", sampling_params={"talker": {"fail_at": "step", "fail_step": 1}}
            )
            left = started.omni.submit("left")
            others = [started.omni.submit(name) for name in NAMES]
            with pytest.raises(StageFailedError):
                await read(failing)
            left.close()
            order.clear()
            await asyncio.gather(*map(read, others))
            names = [running.name for running in others]
            assert order == [name for name in names for _ in range(3)]
            assert len([output async for output in slow]) == 3

        started.call(work())
        started.settle()


@pytest.mark.slow
def test_a_user_of_a_running_pipeline_who_does_not_read_stops_nobody() -> None:
    """Neither at the last stage nor at one that his stream waits at for others."""
    stages = [
        FakeStage(name="thinker", args={"num_outputs": 300, "output_bytes": 20_000}, final="text"),
        FakeStage(name="talker"),
        FakeStage(name="vocoder", final="data"),
    ]
    plan = replace(fake_plan(stages), active_stream_window=1)
    few = {"thinker": {"num_outputs": 5}}
    with Started(plan, unread_bytes=200_000) as started:

        async def work() -> None:
            held = [started.omni.submit("held") for _ in range(3)]
            for _ in range(3):
                assert len((await started.omni.run("hi", sampling_params=few)).outputs) == 10
            for running in held:
                assert len([output async for output in running]) == 600

        started.call(work())
        started.settle()
