"""Three stages as processes: what a request gives, and what it does not touch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from stagemesh.errors import (
    ClosedError,
    DeadlineError,
    DiagnosticError,
    InvalidRequestError,
    StageFailedError,
)
from stagemesh.runtime.omni import AsyncOmni, Omni
from stagemesh.runtime.outputs import StageState
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.started import Started, Watch, collect

pytestmark = pytest.mark.slow

IDLE = {0: (0,), 1: (0,), 2: (0,)}
STALL = {"fail_at": "stall"}


@pytest.fixture(scope="module")
def whole() -> Iterator[Started]:
    """Three stages that hand over everything at the end."""
    with Started(fake_plan(three_stages(), chunked=False)) as started:
        yield started


def test_outputs_of_all_final_stages_arrive_in_order(streaming: Started) -> None:
    """Each final stage's outputs come in order, the last one marked, with all their bytes."""
    outputs = streaming.call(collect(streaming.omni, "hi"))
    for stage in ("thinker", "vocoder"):
        said = [output for output in outputs if output.stage == stage]
        assert [output.payload.meta["text"] for output in said] == ["hi#0", "hi#1", "hi#2"]
        assert [output.final for output in said] == [False, False, True]
        for number, output in enumerate(said):
            assert bytes(output.payload.buffer("data").data) == bytes([number]) * 40_000


def test_whole_payloads_give_the_same(streaming: Started, whole: Started) -> None:
    """Handing over at the end gives the same outputs as handing over chunks."""
    chunked, at_once = (
        sorted(
            (output.stage, str(output.payload.meta), output.payload.buffers)
            for output in started.call(collect(started.omni, "hi"))
        )
        for started in (streaming, whole)
    )
    assert chunked == at_once


def test_requests_at_once_do_not_mix(streaming: Started) -> None:
    """Many requests at a time each get their own answer."""
    results = streaming.many([f"question {number}" for number in range(20)])
    for number, result in enumerate(results):
        assert result.text == "".join(f"question {number}#{part}" for part in range(3))
    assert streaming.in_flight() == IDLE


def test_the_report_tells_what_each_stage_did(streaming: Started) -> None:
    """Every stage is in the report, with its replica and what it counted."""
    report = streaming.run().report
    assert [(part.stage, part.replicas, part.num_requests) for part in report] == [
        ("thinker", (0,), 1),
        ("talker", (0,), 1),
        ("vocoder", (0,), 1),
    ]
    assert all(part.units == {"outputs": 3.0} for part in report)
    assert all(part.first_output_s is not None for part in report)


def test_progress_goes_from_waiting_to_finished(streaming: Started) -> None:
    """Each stage is told to wait, to run and to finish, in this order."""
    watch = Watch()
    streaming.call(streaming.omni.run("hi", on_progress=watch))
    for stage in ("thinker", "talker", "vocoder"):
        states = [progress.state for progress in watch.heard if progress.stage == stage]
        assert states == sorted(states, key=list(StageState).index)
        assert states[0] is StageState.WAITING
        assert states[-1] is StageState.FINISHED


@pytest.mark.parametrize("stage", ["thinker", "talker", "vocoder"])
@pytest.mark.parametrize("place", ["step", "raise"])
def test_a_failing_request_fails_alone(streaming: Started, stage: str, place: str) -> None:
    """An engine's failure is told with stage and replica, and the system goes on."""
    told = f"`{stage}` replica `0` failed.*`{place}`"
    with pytest.raises(StageFailedError, match=told) as caught:
        streaming.run(params={stage: {"fail_at": place}})
    assert (caught.value.stage, caught.value.replica) == (stage, 0)
    assert streaming.run().text == "hi#0hi#1hi#2"
    assert streaming.in_flight() == IDLE


def test_a_neighbour_of_a_failing_request_goes_on(streaming: Started) -> None:
    """A request that fails at its second output leaves one beside it alone."""

    async def both() -> list[object]:
        failing = streaming.omni.run(
            "bad", sampling_params={"talker": {"fail_at": "step", "fail_step": 1}}
        )
        return list(
            await asyncio.gather(failing, streaming.omni.run("good"), return_exceptions=True)
        )

    failed, good = streaming.call(both())
    assert isinstance(failed, StageFailedError)
    assert getattr(good, "text", None) == "good#0good#1good#2"


@pytest.mark.parametrize("place", ["add", "append"])
def test_a_request_that_cannot_be_served_is_the_users_fault(streaming: Started, place: str) -> None:
    """An engine that refuses a request gives `InvalidRequestError` with the stage's name."""
    with pytest.raises(InvalidRequestError, match=f"stage `thinker`.*`{place}`") as caught:
        streaming.run(params={"thinker": {"fail_at": place}})
    assert caught.value.stage == "thinker"


def test_a_deadline_ends_a_request_and_frees_its_place(streaming: Started) -> None:
    """A stage that says nothing is not waited for beyond the deadline."""
    told = r"not done after 0\.05 s by stage `(thinker|talker)` replica `0`"
    with pytest.raises(DeadlineError, match=told):
        streaming.call(streaming.omni.run("hi", sampling_params={"talker": STALL}, timeout_s=0.05))
    streaming.run()
    assert streaming.in_flight() == IDLE


def test_leaving_the_iteration_cancels_everywhere(streaming: Started) -> None:
    """When the user goes, every stage forgets the request, and its name can be used again."""

    async def leave() -> None:
        outputs = streaming.omni.generate(
            "hi", request_id="mine", sampling_params={"vocoder": STALL}
        )
        assert (await anext(outputs)).payload.meta["text"] == "hi#0"
        await outputs.aclose()

    streaming.call(leave())
    streaming.run()
    assert streaming.in_flight() == IDLE
    streaming.call(leave())


def test_a_name_in_use_is_refused(streaming: Started) -> None:
    """Two running requests cannot have one name."""

    async def twice() -> None:
        first = streaming.omni.generate("hi", request_id="same", sampling_params={"vocoder": STALL})
        await anext(first)
        try:
            await streaming.omni.run("hi", request_id="same")
        finally:
            await first.aclose()

    with pytest.raises(InvalidRequestError, match="`same` is still running"):
        streaming.call(twice())


def test_all_mistakes_of_a_request_are_told_at_once(streaming: Started) -> None:
    """Unknown stages, unknown parameters and wrong types are diagnostics, nothing is submitted."""
    with pytest.raises(DiagnosticError) as caught:
        streaming.run(
            params={
                "thinkr": {},
                "thinker": {"num_output": 1},
                "talker": {"delay_steps": "2"},
                "vocoder": {},
            }
        )
    codes = [diagnostic.code for diagnostic in caught.value.diagnostics]
    assert codes[:2] == ["RT001", "RT002"]
    assert len(codes) == 3
    assert "did you mean `thinker`" in str(caught.value.diagnostics[0].help)
    assert streaming.in_flight() == IDLE


@pytest.mark.parametrize("name", ["x" * 257, "\ud800"], ids=["long", "surrogate"])
def test_a_name_that_cannot_be_sent_is_refused(streaming: Started, name: str) -> None:
    """A bad name is the user's mistake, and never reaches a stage."""
    with pytest.raises(InvalidRequestError):
        streaming.call(streaming.omni.run("hi", request_id=name))
    assert streaming.in_flight() == IDLE


def test_a_prompt_that_cannot_be_carried_is_refused(streaming: Started) -> None:
    """Megabytes of text are no metadata: the request fails, its place is freed."""
    with pytest.raises(InvalidRequestError, match="prompt cannot be carried"):
        streaming.run("x" * 2_000_000)
    streaming.run()
    assert streaming.in_flight() == IDLE


def test_an_empty_prompt_is_a_diagnostic(streaming: Started) -> None:
    """Blank text is no question."""
    with pytest.raises(DiagnosticError, match="RT004"):
        streaming.run("  ")


def test_a_plan_that_cannot_be_run_says_why() -> None:
    """The reasons of the plan are diagnostics, and nothing is started."""
    plan = fake_plan(three_stages())
    blocked = replace(plan, not_runnable=("no `tp`",))
    with pytest.raises(DiagnosticError, match="cannot be run: no `tp`"):
        AsyncOmni(blocked)


@pytest.mark.parametrize("given", [{"devices": 2}, {"seed": 3}, {"async_chunk": None}])
def test_a_plan_takes_no_further_configuration(given: dict[str, Any]) -> None:
    """What would be ignored is refused."""
    with pytest.raises(TypeError, match="complete"):
        AsyncOmni(fake_plan(three_stages()), **given)


def test_an_argument_that_is_no_field_says_what_was_meant() -> None:
    """The same error as for a flag, with the argument as its place."""
    with pytest.raises(DiagnosticError) as caught:
        Omni("nowhere", max_num_seq=4)
    found = {each.code: each for each in caught.value.diagnostics}
    assert str(found["CF065"].origin) == "Omni(max_num_seq=...)"
    assert str(found["CF065"].help).startswith("did you mean `max_num_seqs`?")


def test_a_system_that_is_not_started_says_so() -> None:
    """Using it too early is `ClosedError`."""
    omni = AsyncOmni(fake_plan(three_stages()))
    with pytest.raises(ClosedError):
        asyncio.run(omni.run("hi"))
