"""Calls that are wrong in themselves: each is told as what it is, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import sys
from dataclasses import replace
from typing import cast

import pytest

from stagemesh.config.launch import LaunchOptions
from stagemesh.errors import ClosedError, DiagnosticError
from stagemesh.runtime.calls import Prompt
from stagemesh.runtime.checks import check_executable, check_timeout
from stagemesh.runtime.edge_out import EdgeOut
from stagemesh.runtime.loop_thread import LoopThread
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.outputs import StageState
from stagemesh.runtime.params import SamplingParams
from stagemesh.spec.payload import Buffer, Payload
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.started import Started, Watch
from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow

IDLE = {0: (0,), 1: (0,), 2: (0,)}
STALL = {"vocoder": {"fail_at": "stall"}}
NESTED: list[object] = []
NESTED.append(NESTED)
BYTES = Buffer(name="x", dtype="uint8", shape=(2,), data=memoryview(b"ab"))


def test_a_system_is_one_frontend() -> None:
    """Several are processes of a server, so nothing is started here."""
    plan = replace(fake_plan(three_stages()), launch=LaunchOptions(api_server_count=2))
    with pytest.raises(DiagnosticError, match="RT061"):
        AsyncOmni(plan)


def test_ray_that_is_not_installed_is_missed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A headless start asks it for nothing."""
    monkeypatch.setitem(sys.modules, "ray", None)
    plan = replace(fake_plan(three_stages()), launch=LaunchOptions(worker_backend="ray"))
    with pytest.raises(DiagnosticError, match=r"RT063.*`thinker`, `talker`, `vocoder`"):
        AsyncOmni(plan)
    headless = replace(plan, launch=replace(plan.launch, headless=True, stage_id=0))
    assert check_executable(headless) == []
    assert check_executable(replace(plan, launch=LaunchOptions())) == []


def changed(**fields: object) -> Payload:
    """A payload of one buffer that has something of the wrong type."""
    parts = {"name": "x", "dtype": "uint8", "shape": (2,), "data": memoryview(b"ab")} | fields
    return Payload(buffers=(Buffer(**parts),))  # type: ignore[arg-type]  # which is what is tested


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ({"prompt": "hi"}, "got `dict`"),
        (None, "got `NoneType`"),
        (Payload(meta={"deep": NESTED}), "neither a JSON scalar"),  # type: ignore[dict-item]
        (Payload(meta={5: "x"}), "has the name `5`"),  # type: ignore[dict-item]
        (Payload(meta="hi"), "`meta` is `str`"),  # type: ignore[arg-type]
        (Payload(buffers=[BYTES]), "`list`, not a tuple"),  # type: ignore[arg-type]
        (Payload(buffers=(b"ab",)), "a buffer is `bytes`"),  # type: ignore[arg-type]
        (changed(data=b"ab"), "holds `bytes`, not a `memoryview`"),
        (changed(dtype="float"), "the dtype `float`"),
        (changed(dtype=["uint8"]), "the dtype"),
        (changed(shape=2), "the shape `2`"),
        (changed(name=None), "the name `None`"),
    ],
)
def test_a_prompt_of_the_wrong_shape_is_a_diagnostic(
    streaming: Started, prompt: object, told: str
) -> None:
    """It never reaches a stage."""
    with pytest.raises(DiagnosticError, match=told) as caught:
        streaming.call(streaming.omni.run(cast("Prompt", prompt)))
    assert [found.code for found in caught.value.diagnostics] == ["RT006"]
    assert streaming.in_flight() == IDLE


def test_whatever_goes_wrong_with_a_prompt_frees_its_places(
    streaming: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault that nobody foresaw is raised as it is, and the stages forget the request."""

    def fault(*_arguments: object, **_named: object) -> bool:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(EdgeOut, "send", fault)
        with pytest.raises(ZeroDivisionError):
            streaming.run()
    streaming.run()
    assert streaming.in_flight() == IDLE


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "5", True])
def test_a_time_limit_that_is_none_is_a_diagnostic(streaming: Started, seconds: object) -> None:
    """Zero, less, and what is no number."""
    with pytest.raises(DiagnosticError, match="RT007"):
        streaming.call(streaming.omni.run("hi", timeout_s=cast("float", seconds)))


def test_no_time_limit_and_a_long_one_are_fine() -> None:
    """`None` and infinity wait as long as it takes."""
    assert check_timeout(None) == check_timeout(float("inf")) == check_timeout(1) == []


@pytest.mark.parametrize(
    ("params", "code"),
    [
        (5, "RT008"),
        ({"thinker": 5}, "RT008"),
        ({"thinker": None}, "RT008"),
        ({5: {}}, "RT001"),
        ({"thinker": {5: 1}}, "RT002"),
    ],
)
def test_parameters_of_the_wrong_shape_are_diagnostics(
    streaming: Started, params: object, code: str
) -> None:
    """They are mappings of names, and say so."""
    with pytest.raises(DiagnosticError) as caught:
        streaming.run(params=cast("SamplingParams", params))
    assert [found.code for found in caught.value.diagnostics] == [code]


def test_everything_that_is_wrong_with_a_call_is_told_at_once(streaming: Started) -> None:
    """Prompt, time limit and parameters together."""
    with pytest.raises(DiagnosticError) as caught:
        streaming.call(streaming.omni.run(" ", timeout_s=0, sampling_params={"thinkr": {}}))
    assert [found.code for found in caught.value.diagnostics] == ["RT004", "RT007", "RT001"]


def test_an_iteration_that_is_abandoned_is_cancelled(streaming: Started) -> None:
    """Who breaks out and forgets the iterator has left the request."""

    async def abandon() -> None:
        async for _ in streaming.omni.generate("hi", request_id="mine", sampling_params=STALL):
            break
        gc.collect()

    streaming.call(abandon())
    streaming.run()
    assert streaming.in_flight() == IDLE


@pytest.mark.parametrize("front_door", ["run", "generate"])
def test_a_task_that_is_cancelled_leaves_its_request(streaming: Started, front_door: str) -> None:
    """However the outputs are waited for, every stage forgets the request."""

    async def cancel() -> None:
        watch = Watch()

        async def ask() -> None:
            if front_door == "run":
                await streaming.omni.run("hi", sampling_params=STALL, on_progress=watch)
            async for _ in streaming.omni.generate("hi", sampling_params=STALL, on_progress=watch):
                pass

        work = asyncio.ensure_future(ask())
        await watch.until("talker", StageState.FINISHED)
        work.cancel()
        await asyncio.wait([work], timeout=WAIT_S)
        assert work.cancelled()

    streaming.call(cancel())
    streaming.run()
    assert streaming.in_flight() == IDLE


def test_who_is_called_by_the_runtime_cannot_wait_for_it() -> None:
    """A synchronous call from the thread of the runtime is refused rather than waited for."""
    thread = LoopThread()

    async def inside() -> None:
        thread.call(asyncio.sleep(0))

    with pytest.raises(RuntimeError, match="on_progress"):
        thread.call(inside())
    thread.stop()


def test_a_call_ends_with_the_thread() -> None:
    """What still runs when the thread is stopped, or comes later, is refused as closed."""
    thread = LoopThread()

    async def stop() -> None:
        thread.stop()
        await asyncio.Event().wait()

    with pytest.raises(ClosedError):
        thread.call(stop())
    thread.stop()
    with pytest.raises(ClosedError):
        thread.call(asyncio.sleep(0))


def test_a_call_may_have_a_deadline() -> None:
    """After it the work is cancelled."""
    thread = LoopThread()
    with pytest.raises(TimeoutError):
        thread.call(asyncio.Event().wait(), timeout_s=0.01)
    thread.stop()
