"""A request that has ended is gone at once: nothing of it waits for the garbage collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping
from contextlib import aclosing

import pytest

from stagemesh.errors import RequestError
from stagemesh.runtime.core.request import RequestMachine
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.running import Running
from tests.runtime.started import Started

pytestmark = pytest.mark.slow

IDLE = {0: (0,), 1: (0,), 2: (0,)}
FAILING = {"fail_at": "step"}
STALLING = {"fail_at": "stall"}


@pytest.fixture
def no_collector() -> Iterator[None]:
    """In a process with much memory a full collection is rare."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def records() -> int:
    """Records of requests that are still in memory."""
    return sum(type(found) in (Running, RequestMachine) for found in gc.get_objects())


async def ask(
    omni: AsyncOmni, said: Mapping[str, object], *, heard: int, timeout_s: float | None
) -> None:
    """Ask once, leave after `heard` outputs, and let the request fail as it likes."""
    outputs = omni.generate("hi", sampling_params={"talker": said}, timeout_s=timeout_s)
    with contextlib.suppress(RequestError):
        async with aclosing(outputs):
            async for _ in outputs:
                heard -= 1
                if heard == 0:
                    return


@pytest.mark.parametrize(
    ("said", "heard", "timeout_s"),
    [
        pytest.param({}, 100, None, id="heard to the end"),
        pytest.param({}, 1, None, id="left in the middle"),
        pytest.param(FAILING, 100, None, id="failed by a stage"),
        pytest.param(STALLING, 100, 0.05, id="past its deadline"),
    ],
)
@pytest.mark.usefixtures("no_collector")
def test_an_ended_request_leaves_no_record(
    streaming: Started, said: Mapping[str, object], heard: int, timeout_s: float | None
) -> None:
    """Whatever its end was."""
    before = records()
    for _ in range(3):
        streaming.call(ask(streaming.omni, said, heard=heard, timeout_s=timeout_s))
    streaming.run()  # what the stages say of the others comes before what they say of this one
    assert streaming.in_flight() == IDLE
    assert records() == before
