"""Windows of `stage_pp` as a plan has them: on the edges that leave a stage."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from stagemesh.plan.values import Plan, StagePlan
from stagemesh.runtime.core.credits import Limits
from stagemesh.runtime.core.windows import StageWindow
from stagemesh.runtime.shapes import limits_of
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.axis_plans import axis_plan
from tests.runtime.started import Started


def windowed(size: int, unit: str) -> Plan:
    """Three stages, each with a window on what leaves it."""
    axis = axis_plan("stage_pp", size, "no_ranks", options={"unit": unit})
    plan = fake_plan(three_stages(talker=(2, "round_robin")))

    def with_axis(stage: StagePlan) -> StagePlan:
        return replace(stage, axes=(axis,))

    return replace(plan, stages=tuple(map(with_axis, plan.stages)))


def test_the_window_of_a_stage_is_that_of_its_edges() -> None:
    """With its size and unit; a stage without one has the window of each request alone."""
    assert limits_of(fake_plan(three_stages()).stages[0]) == Limits()
    for unit in ("requests", "chunks"):
        window = limits_of(windowed(3, unit).stages[0]).window
        assert window is not None
        assert (window.size, window.unit) == (3, unit)
    assert limits_of(windowed(1, "chunks").stages[0]).window == StageWindow(size=1, unit="chunks")


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["requests", "chunks"])
def test_requests_go_through_the_narrowest_window(unit: str) -> None:
    """One at a time on every edge, and each gets what is its own."""
    with Started(windowed(1, unit)) as started:
        for number, result in enumerate(started.many([f"q {number}" for number in range(16)])):
            assert result.text == "".join(f"q {number}#{part}" for part in range(3))

        async def slow() -> None:
            held = started.omni.submit("held")
            await asyncio.gather(*(started.omni.run("hi") for _ in range(4)))
            assert len([output async for output in held]) == 6

        started.call(slow())
        started.settle()
