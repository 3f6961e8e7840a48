"""The fake engine does what its program says."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stagemesh.engines._fake import EXIT_CODE, FakeEngine
from stagemesh.engines.fake import ENGINE, FakeOptions
from stagemesh.spec.engine import EngineRequest, FaultKind, Finish, MemoryInput
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.payload import Buffer, Payload
from stagemesh.testing.engine_context import engine_context
from tests.waiting import WAIT_S

CONTEXT = engine_context(FakeOptions(), async_chunk=False)
EXITING = """
from tests.engines.test_fake import fake, given
engine = fake(fail_at="exit", num_outputs=2, fail_step=1)
given(engine)
engine.step()
engine.step()
raise SystemExit(99)
"""


def fake(**program: object) -> FakeEngine:
    """Return an engine with a program."""
    return FakeEngine(replace(CONTEXT, args=FakeOptions(**program)))  # type: ignore[arg-type]


def given(engine: FakeEngine, **params: object) -> None:
    """Give the engine the request `a` with one input."""
    engine.add(EngineRequest(request_id="a", params=params))
    buffer = Buffer(name="x", dtype="uint8", shape=(2,), data=memoryview(b"hi"))
    engine.append("a", Payload(meta={"text": "hi", "n": 1}, buffers=(buffer,)), last=True)


def test_an_echo_gives_the_input_back() -> None:
    """Metadata and buffers come back as a copy."""
    engine = fake()
    given(engine)
    (output,) = engine.step()
    assert output.finish is Finish.STOP
    (payload,) = output.payloads
    assert payload.meta == {"text": "hi", "n": 1}
    assert bytes(payload.buffer("x").data) == b"hi"


def test_an_echo_wants_its_next_input_when_it_has_none() -> None:
    """Not before: whoever sends them would run ahead."""
    engine = fake(delay_steps=1)
    engine.add(EngineRequest(request_id="a"))
    wanted = [engine.wants_input("a")]
    for text in "bc":
        engine.append("a", Payload(meta={"text": text}), last=False)
    for _ in range(4):
        wanted.append(engine.wants_input("a"))
        engine.step()
    assert [*wanted, engine.wants_input("a")] == [True, False, False, False, False, True]


def test_a_program_gives_its_outputs_with_their_delay() -> None:
    """Number, bytes and the steps between are as told; a request's program beats the stage's."""
    engine = fake(num_outputs=5, delay_steps=2)
    given(engine, num_outputs=2, output_bytes=3)
    steps = [engine.step() for _ in range(6)]
    assert [len(outputs) for outputs in steps] == [0, 0, 1, 0, 0, 1]
    assert steps[2][0].payloads[0].meta == {"text": "hi#0"}
    assert bytes(steps[5][0].payloads[0].buffer("data").data) == b"\x01\x01\x01"
    assert steps[5][0].finish is Finish.STOP
    assert not engine.has_work()


def test_a_program_without_outputs_still_ends() -> None:
    """The end is then an empty output."""
    engine = fake(num_outputs=0)
    given(engine)
    (output,) = engine.step()
    assert (output.payloads, output.finish) == ((), Finish.STOP)


@pytest.mark.parametrize(
    ("place", "kind", "steps"),
    [
        ("add", FaultKind.INVALID_REQUEST, 1),
        ("append", FaultKind.INVALID_REQUEST, 1),
        ("step", FaultKind.INTERNAL, 2),
    ],
)
def test_a_request_fails_where_it_is_told(place: str, kind: FaultKind, steps: int) -> None:
    """The failure is the last output, after `fail_step` others."""
    engine = fake(num_outputs=3)
    given(engine, fail_at=place, fail_step=1)
    outputs = [output for _ in range(steps) for output in engine.step()]
    assert len(outputs) == steps
    fault = outputs[-1].error
    assert fault is not None
    assert (fault.kind, fault.message) == (kind, f"the program fails at `{place}`")
    assert not engine.has_work()


@pytest.mark.parametrize("params", [{"speed": 1}, {"fail_at": "load"}])
def test_a_parameter_without_meaning_fails_the_request(params: dict[str, object]) -> None:
    """It is not dropped: neither an unknown one, nor one that only a stage can have."""
    engine = fake()
    given(engine, **params)
    (output,) = engine.step()
    assert output.error is not None
    assert output.error.kind is FaultKind.INVALID_REQUEST
    assert next(iter(params)) in output.error.message


def test_loading_and_stepping_can_raise() -> None:
    """Both are failures of the whole stage."""
    with pytest.raises(RuntimeError, match="fails at `load`"):
        fake(fail_at="load").load()
    engine = fake(num_outputs=1)
    given(engine, fail_at="raise")
    with pytest.raises(RuntimeError, match="fails at `raise`"):
        engine.step()


def test_a_stalled_request_says_nothing_and_is_no_work() -> None:
    """It neither ends nor spins."""
    engine = fake(num_outputs=3)
    given(engine, fail_at="stall", fail_step=1)
    assert len(engine.step()) == 1
    assert not engine.has_work()
    assert engine.step() == []


def test_the_process_can_end() -> None:
    """The process is gone in the middle of a request, with the engine's exit code."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", EXITING]
    ended = subprocess.run(command, cwd=root, check=False, timeout=WAIT_S, capture_output=True)
    assert ended.returncode == EXIT_CODE, ended.stderr


def test_echo_is_the_one_action() -> None:
    """It gives its arguments back."""
    assert fake().call("echo", {"a": 1}) == {"a": 1}


def test_memory_is_what_is_told() -> None:
    """The plan counts `memory_bytes`."""
    args = FakeOptions(memory_bytes=7)
    estimate = ENGINE.memory(
        MemoryInput(facts=StageFacts(), sizes={}, args=args, device_kind="cpu")
    )
    assert estimate is not None
    assert estimate.total == 7


@pytest.mark.parametrize(
    ("point", "calls"),
    [
        ("add", ["add"]),
        ("append", ["append"]),
        ("step", ["step"]),
        ("finish", ["step"]),
        ("pause", ["pause"]),
        ("resume", ["resume"]),
        ("cancel", ["cancel"]),
    ],
)
def test_a_process_is_killed_in_the_call_that_its_request_names(
    point: str, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGKILL, and in no other call."""
    now: list[str] = []
    killed: list[str] = []
    monkeypatch.setattr("os.kill", lambda _pid, _signal: killed.extend(now))
    engine = fake(num_outputs=1)
    course: dict[str, Callable[[], object]] = {
        "add": lambda: engine.add(EngineRequest(request_id="a", params={"kill_at": point})),
        "pause": lambda: engine.pause("a"),
        "resume": lambda: engine.resume("a"),
        "append": lambda: engine.append("a", Payload(meta={"text": "hi"}), last=True),
        "step": engine.step,
    }
    if point == "cancel":
        course["step"] = lambda: engine.cancel("a")
    for name, call in course.items():
        now[:] = ["cancel" if (point, name) == ("cancel", "step") else name]
        call()
    assert killed == calls


@pytest.mark.parametrize("point", ["construct", "load", "loaded", "close", "closed"])
def test_a_process_is_killed_where_its_stage_is_told_to(
    point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, on the way up or down."""
    killed: list[int] = []
    monkeypatch.setattr("os.kill", lambda _pid, number: killed.append(number))
    engine = fake(kill_at=point)
    engine.load()
    engine.close()
    assert killed == [signal.SIGKILL]


def test_a_program_may_run_out_of_memory() -> None:
    """The step raises; the request stays until it is cancelled."""
    engine = fake(num_outputs=1, fail_at="memory")
    given(engine)
    with pytest.raises(MemoryError):
        engine.step()


@pytest.mark.parametrize("place", ["load_hang", "hang"])
def test_a_program_may_never_come_back(place: str) -> None:
    """From `load`, or from `step`; other threads go on."""
    loaded = threading.Event()

    def run() -> None:
        engine = fake(num_outputs=1, fail_at=place)
        engine.load()
        loaded.set()
        given(engine)
        engine.step()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert loaded.wait(0.1 if place == "load_hang" else WAIT_S) is (place == "hang")
    thread.join(0.1)
    assert thread.is_alive()


def test_a_step_takes_as_long_as_the_program_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one that serves something does."""
    slept: list[float] = []
    monkeypatch.setattr("stagemesh.engines._fake.engine.time.sleep", slept.append)
    engine = fake(step_s=0.25)
    engine.step()
    given(engine)
    engine.step()
    assert slept == [0.25]
