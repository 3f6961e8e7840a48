"""What goes wrong with a request is told clearly, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from stagemesh import Omni, StageProgress
from stagemesh.errors import DiagnosticError, InvalidRequestError, StageFailedError
from stagemesh.runtime.outputs import StageState
from tests.e2e import leaks

pytestmark = pytest.mark.slow


def test_a_question_longer_than_the_context_is_refused(chunked: Omni) -> None:
    """The message gives the number of tokens and what is allowed; others are served on."""
    with pytest.raises(InvalidRequestError, match=r"`3031` tokens, allowed are `2047`") as caught:
        chunked.generate("word " * 3000)
    assert caught.value.stage == "thinker"
    [result] = chunked.generate("Hi.", sampling_params={"thinker": {"max_tokens": 4}})
    assert result.text


def test_an_unknown_parameter_is_refused_with_the_nearest_name(chunked: Omni) -> None:
    """Nothing that is given to a request is lost silently."""
    with pytest.raises(DiagnosticError) as caught:
        chunked.generate("Hi.", sampling_params={"thinker": {"temprature": 0.5}})
    [found] = caught.value.diagnostics
    assert found.help is not None
    assert "`temperature`" in found.help


def test_an_answer_without_anything_to_speak_gives_no_audio(chunked: Omni) -> None:
    """An answer that ends before its first word ends well in every stage, without audio."""
    [result] = chunked.generate(
        "What is the capital of France?", sampling_params={"thinker": {"stop": ["The"]}}
    )
    assert result.text == ""
    assert result.audio is None
    assert [stage.stage for stage in result.report] == ["thinker", "talker", "code2wav"]


@pytest.mark.parametrize("stage", ["thinker", "talker", "code2wav"])
def test_the_death_of_a_stage_fails_its_request_and_names_it(voice_chat: Path, stage: str) -> None:
    """SIGKILL in the middle of a request: an error that names the stage, then nothing is left."""
    memory = leaks.shared_memory()
    with Omni(str(voice_chat)) as omni:
        [planned] = [found for found in omni.plan.stages if found.name == stage]
        pids = omni.pids
        [victim] = [pid for place, pid in pids.items() if place.stage == planned.stage_id]
        working = threading.Event()
        in_time: list[bool] = []

        def kill() -> None:
            in_time.append(working.wait(60))
            os.kill(victim, signal.SIGKILL)

        def watch(news: StageProgress) -> None:
            if news.stage == stage and news.state is StageState.RUNNING:
                working.set()

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(StageFailedError) as caught:
            omni.generate(
                "Tell me a long story about a fox.",
                sampling_params={"thinker": {"max_tokens": 400, "ignore_eos": True}},
                on_progress=watch,
            )
        killer.join()
        assert in_time == [True]
        assert caught.value.stage == stage
    assert not [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()]
    assert leaks.shared_memory() == memory
