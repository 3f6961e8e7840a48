"""Windows of `stage_pp` as a plan has them: on the edges that leave a stage."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from stagemesh.connectors.shared_memory import CONNECTOR, SharedMemoryOptions
from stagemesh.plan.values import Plan, StagePlan
from stagemesh.runtime.core.credits import Limits
from stagemesh.runtime.core.windows import StageWindow
from stagemesh.runtime.edge import Connector
from stagemesh.runtime.edge_out import EdgeOut
from stagemesh.runtime.messages import Key
from stagemesh.runtime.shapes import limits_of, together_on
from stagemesh.runtime.stream import Stream
from stagemesh.spec.payload import Payload
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.axis_plans import axis_plan
from tests.runtime.desk import Recorder
from tests.runtime.started import Started


def windowed(size: int, unit: str) -> Plan:
    """Three stages, each with a window on what leaves it."""
    axis = axis_plan("stage_pp", size, "no_ranks", options={"unit": unit})
    plan = fake_plan(three_stages(talker=(2, "round_robin")))

    def with_axis(stage: StagePlan) -> StagePlan:
        return replace(stage, axes=(axis,))

    return replace(plan, stages=tuple(map(with_axis, plan.stages)))


def bounded(plan: Plan, source: int, most: int) -> Plan:
    """The same with a bound on the edge that leaves one stage."""
    edges = [
        replace(edge, max_inflight=most) if edge.source == source else edge for edge in plan.edges
    ]
    return replace(plan, edges=tuple(edges))


def window_of(plan: Plan, target: int = 1) -> StageWindow | None:
    """That of the edges from the first stage."""
    return limits_of(plan, plan.stages[0], target).window


def test_the_window_of_a_stage_is_that_of_its_edges() -> None:
    """With its size and unit; a stage without one has the window of each request alone."""
    plan = fake_plan(three_stages())
    assert limits_of(plan, plan.stages[0], 1) == Limits()
    assert window_of(windowed(3, "requests")) == StageWindow(requests=3)
    assert window_of(windowed(3, "chunks")) == StageWindow(chunks=3)


@pytest.mark.parametrize(
    ("size", "unit", "most", "window"),
    [
        (3, "requests", 2, StageWindow(requests=2)),
        (2, "requests", 3, StageWindow(requests=2)),
        (3, "chunks", 2, StageWindow(requests=2, chunks=3)),
    ],
)
def test_requests_in_flight_on_an_edge_are_bounded_with_those_of_the_stage(
    size: int, unit: str, most: int, window: StageWindow
) -> None:
    """The smaller number holds, on that edge alone."""
    plan = bounded(windowed(size, unit), 0, most)
    assert window_of(plan) == window
    assert window_of(bounded(fake_plan(three_stages()), 0, most)) == StageWindow(requests=most)
    assert window_of(bounded(fake_plan(three_stages()), 1, most)) is None


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["requests", "chunks", "max_inflight"])
def test_requests_go_through_the_narrowest_window(unit: str) -> None:
    """One at a time on every edge, and each gets what is its own."""
    plan = fake_plan(three_stages(talker=(2, "round_robin")))
    plan = bounded(bounded(plan, 0, 1), 1, 1) if unit == "max_inflight" else windowed(1, unit)
    with Started(plan) as started:
        for number, result in enumerate(started.many([f"q {number}" for number in range(16)])):
            assert result.text == "".join(f"q {number}#{part}" for part in range(3))

        async def slow() -> None:
            held = started.omni.submit("held")
            await asyncio.gather(*(started.omni.run("hi") for _ in range(4)))
            assert len([output async for output in held]) == 6

        started.call(slow())
        started.settle()


def test_who_has_said_its_last_on_an_edge_makes_place_there() -> None:
    """It may still wait for something elsewhere, and the next one for nothing but this place.

    Two edges of a stage can have the same requests in another order, where one is opened late.
    """

    async def run() -> None:
        recorder, connector = Recorder(), Connector(spec=CONNECTOR, options=SharedMemoryOptions())
        limits = Limits(window=StageWindow(requests=1))
        gone: list[Key] = []
        edge = EdgeOut(
            cast("Stream", recorder),
            connector.sender(),
            lambda key, _: gone.append(key),
            limits=limits,
        )
        one, two, three = (Key(rid=name, epoch=1) for name in ("one", "two", "three"))
        for key in (one, two, three):
            edge.open(key)
        assert edge.send(one, Payload(), last=False)
        assert not edge.send(two, Payload(), last=True)
        assert not edge.send(three, Payload(), last=True)
        edge.acknowledged([recorder.chunks()[0].number])
        assert gone == []
        assert edge.send(one, Payload(), last=True)
        for number, key in enumerate((two, three), start=1):
            edge.acknowledged([recorder.chunks()[number].number])
            assert gone[-1] == key
        edge.acknowledged([recorder.chunks()[-1].number])
        for key in (one, two, three):
            edge.drop(key)
        assert edge.idle
        edge.close()

    asyncio.run(run())


@pytest.mark.parametrize(("size", "together"), [(None, 1), (1, 1), (3, 3), (-1, None)])
def test_outputs_that_go_together_are_those_of_the_edge(
    size: int | None, together: int | None
) -> None:
    """Where chunks are handed over; elsewhere all of them do."""
    for chunked in (True, False):
        edge = replace(fake_plan(three_stages(), chunked=chunked).edges[0], window_size=size)
        assert together_on(edge) == (together if chunked else None)


@pytest.mark.slow
def test_outputs_that_go_together_are_complete() -> None:
    """Two by two on one edge, and all at the end on the next."""
    plan = fake_plan(three_stages())
    sizes = (2, -1)
    edges = [replace(edge, window_size=size) for edge, size in zip(plan.edges, sizes, strict=True)]
    with Started(replace(plan, edges=tuple(edges))) as started:
        for number, result in enumerate(started.many([f"q {number}" for number in range(4)])):
            assert result.text == "".join(f"q {number}#{part}" for part in range(3))
            assert len(result.outputs) == 6
