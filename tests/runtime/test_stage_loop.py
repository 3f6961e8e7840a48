"""The engine loop of a stage, driven turn by turn with the `fake` engine in this process."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from stagemesh.engines._fake import FakeEngine
from stagemesh.engines.fake import FakeOptions
from stagemesh.runtime.inbox import Forget, Pause, Quit, Resume
from stagemesh.runtime.load import CALLER
from stagemesh.runtime.messages import Cancelled, Failed, Finished, Key
from stagemesh.runtime.stage_loop import (
    Counted,
    Over,
    Target,
    is_out_of_memory,
)
from stagemesh.spec.bridge import BridgeFactory
from stagemesh.spec.engine import EngineOutput
from stagemesh.spec.payload import Payload
from tests.runtime.looping import KEY, OTHER, Stage
from tests.runtime.plugins import FailingBridge, UpperBridge
from tests.waiting import WAIT_S


def test_outputs_go_to_every_target_as_they_appear() -> None:
    """A chunked edge and the caller get each output in the turn that made it."""
    stage = Stage()
    stage.submit(KEY)
    stage.turn()
    assert stage.texts(1) == stage.texts(CALLER) == [("a#0", False)]
    stage.turn()
    assert stage.texts(1) == stage.texts(CALLER) == [("a#0", False), ("a#1", True)]
    (end,) = stage.ends()
    assert isinstance(end, Finished)
    assert end.units == {"outputs": 2.0}


def test_an_edge_without_chunks_gets_everything_at_the_end() -> None:
    """The caller hears early, the edge only when the request has finished."""
    stage = Stage(Target(bridge=None, together=None))
    stage.submit(KEY)
    stage.turn()
    assert stage.texts(1) == []
    assert stage.texts(CALLER) == [("a#0", False)]
    stage.turn()
    assert stage.texts(1) == [("a#0", False), ("a#1", True)]


@pytest.mark.parametrize(
    ("together", "told"), [(1, [1, 2, 3, 4, 5]), (2, [0, 2, 2, 4, 5]), (7, [0, 0, 0, 0, 5])]
)
def test_outputs_are_handed_over_together(together: int, told: list[int]) -> None:
    """So many at a time, and with the end what is left; the caller hears of each at once."""
    stage = Stage(Target(bridge=None, together=together), FakeOptions(num_outputs=5))
    stage.submit(KEY)
    for number, count in enumerate(told, start=1):
        stage.turn()
        assert len(stage.texts(1)) == count
        assert len(stage.texts(CALLER)) == number
    assert [last for _, last in stage.texts(1)] == [False] * 4 + [True]


@pytest.mark.parametrize("together", [1, None])
def test_a_bridge_converts_for_its_edge_alone(together: int | None) -> None:
    """What the bridge gives goes to the edge, the end mark on its last piece."""
    stage = Stage(Target(bridge=UpperBridge, together=together))
    stage.submit(KEY)
    stage.turn()
    assert stage.texts(1) == []
    stage.turn()
    assert stage.texts(1) == [("A#0", False), ("A#1", True)]
    assert stage.texts(CALLER) == [("a#0", False), ("a#1", True)]


def test_an_end_without_output_is_told() -> None:
    """A request that says nothing still ends on every edge, with an empty payload."""
    stage = Stage(options=FakeOptions(num_outputs=0))
    stage.submit(KEY)
    stage.finish()
    assert stage.texts(1) == stage.texts(CALLER) == [(None, True)]


def test_a_failing_bridge_fails_its_request_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever a bridge raises ends that request, and is printed for who looks after the stage."""
    bridges = iter([FailingBridge(), UpperBridge()])
    factory = cast("BridgeFactory", partial(next, bridges))
    stage = Stage(Target(bridge=factory))
    stage.submit(KEY)
    stage.submit(OTHER, "b")
    stage.finish()
    assert stage.texts(1, OTHER) == [("B#0", False), ("B#1", True)]
    failed = stage.ends()[0]
    assert isinstance(failed, Failed)
    assert failed.message.startswith("ValueError: no bridge")
    assert not failed.invalid
    assert "Traceback" in capfd.readouterr().err


def test_a_malformed_output_fails_its_request_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """What cannot be carried never reaches the streams."""

    class Malformed(FakeEngine):
        def step(self) -> list[EngineOutput]:
            bad = Payload(meta={"text": object()})  # type: ignore[dict-item]
            return [
                replace(output, payloads=(bad,)) if output.request_id == KEY.rid else output
                for output in super().step()
            ]

    stage = Stage(kind=Malformed)
    stage.submit(KEY)
    stage.submit(OTHER, "b")
    stage.finish()
    failed, finished = stage.ends()
    assert isinstance(failed, Failed)
    assert "malformed: `meta['text']`" in failed.message
    assert isinstance(finished, Finished)
    assert "TypeError" in capfd.readouterr().err


def test_a_raising_step_fails_what_the_engine_holds(capfd: pytest.CaptureFixture[str]) -> None:
    """Every request of the broken step fails, and the next one is served."""
    stage = Stage()
    stage.submit(KEY)
    stage.submit(OTHER, fail_at="raise")
    stage.turn()
    assert [type(end) for end in stage.ends()] == [Failed, Failed]
    assert not stage.engine.has_work()
    stage.submit(Key(rid="r", epoch=3))
    stage.finish()
    assert isinstance(stage.ends()[2], Finished)
    assert "RuntimeError" in capfd.readouterr().err


def test_an_engine_that_raises_without_requests_ends_the_loop() -> None:
    """Nobody is to blame but the engine: the error leaves the loop, nothing spins."""

    class Broken(FakeEngine):
        def has_work(self) -> bool:
            return True

        def step(self) -> list[EngineOutput]:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        Stage(kind=Broken).loop.run()


def test_a_forgotten_request_says_nothing_more() -> None:
    """After a cancel comes exactly one terminal word, and no output."""
    stage = Stage()
    stage.submit(KEY)
    stage.turn()
    stage.inbox.put(Forget(key=KEY))
    stage.inbox.put(Forget(key=KEY))
    stage.turn()
    assert stage.ends() == [Cancelled(key=KEY)]
    assert len(stage.texts(CALLER)) == 1
    assert not stage.engine.has_work()


def test_a_cancel_of_an_earlier_request_does_not_hit_a_later_one() -> None:
    """The epoch tells two requests of one name apart."""
    stage = Stage()
    stage.submit(KEY)
    stage.inbox.put(Forget(key=Key(rid="r", epoch=0)))
    stage.finish()
    assert [type(end) for end in stage.ends()] == [Finished]


def test_a_paused_request_waits_and_goes_on() -> None:
    """Between pause and resume the request has no output, and the engine no work."""
    stage = Stage()
    stage.submit(KEY)
    stage.inbox.put(Pause(key=KEY))
    stage.turn()
    assert not stage.engine.has_work()
    assert stage.texts(CALLER) == []
    stage.inbox.put(Resume(key=KEY))
    stage.finish()
    assert len(stage.texts(CALLER)) == 2


def test_progress_adds_up() -> None:
    """Units are told as totals, so that a lost report does no harm."""
    stage = Stage(options=FakeOptions(num_outputs=3))
    stage.submit(KEY)
    stage.finish()
    counted = [item.units["outputs"] for item in stage.said if isinstance(item, Counted)]
    assert counted == [1.0, 2.0]


def test_an_idle_loop_sleeps_until_it_is_told_to_quit() -> None:
    """Without work the loop waits in its inbox, and `Quit` ends it."""
    stage = Stage()
    thread = threading.Thread(target=stage.loop.run)
    thread.start()
    stage.submit(KEY)
    stage.inbox.put(Quit())
    thread.join(WAIT_S)
    assert not thread.is_alive()


class OutOfMemoryError(RuntimeError):
    """Has the name of that of a device's library."""


class SlightlyOutError(OutOfMemoryError):
    """And may have descendants."""


@pytest.mark.parametrize(
    ("error", "ran_out"),
    [
        (MemoryError(), True),
        (OutOfMemoryError("CUDA out of memory"), True),
        (SlightlyOutError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("the shapes do not match"), False),
        (ValueError(), False),
    ],
)
def test_memory_that_ran_out_is_told_by_what_libraries_raise(
    error: Exception, *, ran_out: bool
) -> None:
    """Without importing any of them."""
    assert is_out_of_memory(error) is ran_out


def test_memory_that_runs_out_twice_in_a_row_ends_the_loop() -> None:
    """The first time fails the requests of that step; a good step forgets it."""
    stage = Stage()
    for _ in range(2):
        stage.submit(KEY, fail_at="memory")
        stage.turn()
        assert stage.said[-1] == Over(terminal=failed(KEY))
        stage.submit(OTHER)
        stage.finish()
    stage.submit(KEY, fail_at="memory")
    stage.turn()
    stage.submit(KEY, fail_at="memory")
    with pytest.raises(RuntimeError, match="out of memory in two steps in a row"):
        stage.turn()


def failed(key: Key) -> Failed:
    """How a request ends for which there was no memory."""
    return Failed(key=key, invalid=False, message="MemoryError: the program has no memory left")


def test_a_traceback_that_nobody_can_read_fails_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full disk, or a reader that is gone, behind the output of the stage."""
    stage = Stage()
    full = Path("/dev/full").open("w", buffering=1, encoding="ascii")  # noqa: SIM115  see below
    monkeypatch.setattr("sys.stderr", full)
    stage.submit(KEY, fail_at="raise")
    stage.turn()
    monkeypatch.undo()
    with pytest.raises(OSError, match="No space left"):
        full.close()
    assert isinstance(stage.said[-1], Over)
    stage.submit(OTHER)
    stage.finish()
    last = stage.said[-1]
    assert isinstance(last, Over)
    assert isinstance(last.terminal, Finished)
