"""`stagemesh run` as a person types it: answer, files, exit codes, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
import wave
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e import leaks
from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
PROGRAM = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
    " from stagemesh.cli._main import main; sys.exit(main())"
)
"""The command line, also where the tests themselves run with interrupts ignored."""
QUESTION = "What is the capital of France?"


def command(arguments: Sequence[str], marker: str) -> subprocess.Popen[str]:
    """Start the command line with a marker that all its processes inherit."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LEAK_MARKER": marker},
        cwd=REPOSITORY,
    )


def finish(process: subprocess.Popen[str], marker: str) -> tuple[int, str, str]:
    """Wait for the end; nothing that carries the marker may be left."""
    with process:
        out, err = process.communicate(timeout=WAIT_S)
    assert not leaks.marked(marker)
    assert "Traceback" not in err
    return process.returncode, out, err


def stagemesh(*arguments: str) -> tuple[int, str, str]:
    """Run a command to its end."""
    marker = uuid.uuid4().hex
    return finish(command(arguments, marker), marker)


def seconds(file: Path) -> float:
    """How long a WAV file plays."""
    with wave.open(str(file), "rb") as audio:
        return audio.getnframes() / audio.getframerate()


def saved_plan(model: Path, folder: Path, strategy: str) -> str:
    """Plan the model under a strategy of the examples, and save the plan."""
    plan = str(folder / "plan.json")
    file = f"examples/strategies/voice_chat/{strategy}.yaml"
    code, out, err = stagemesh("plan", str(model), "--strategy-config", file, "-o", plan)
    assert code == 0, err
    assert "1 x 2" in out
    return plan


def test_a_saved_plan_under_a_strategy_answers_aloud(voice_chat: Path, tmp_path: Path) -> None:
    """Plan, save, run: text on standard output, a table on standard error, speech in the file."""
    plan, answer = saved_plan(voice_chat, tmp_path, "code2wav_replicas"), tmp_path / "answer.wav"
    code, out, err = stagemesh("run", plan, QUESTION, "--output", str(answer))
    assert code == 0, err
    assert "Paris" in out
    assert "real-time factor" in err
    assert seconds(answer) >= 1.0


def test_json_holds_answer_and_report(voice_chat: Path, tmp_path: Path) -> None:
    """With `--json`, here under another strategy, standard output is one object for programs."""
    plan, answer = saved_plan(voice_chat, tmp_path, "thinker_replicas"), tmp_path / "answer.wav"
    code, out, err = stagemesh("run", plan, QUESTION, "--output", str(answer), "--json")
    assert code == 0, err
    told = json.loads(out)
    assert "Paris" in told["text"]
    assert told["audio"]["seconds"] >= 1.0
    assert [stage["stage"] for stage in told["stages"]] == ["thinker", "talker", "code2wav"]
    assert told["stages"][0]["units"]["tokens"] > 0
    assert seconds(answer) >= 1.0


def test_ctrl_c_stops_everything(voice_chat: Path) -> None:
    """An interrupt in the middle of an answer ends with code 130 and leaves no process."""
    marker = uuid.uuid4().hex
    overrides = '{"thinker": {"default_sampling_params": {"max_tokens": 1500, "ignore_eos": true}}}'
    process = command(
        ("run", str(voice_chat), "Tell me a story.", "--stage-overrides", overrides), marker
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("thinker: running"):
            break
    process.send_signal(signal.SIGINT)
    code, _, _ = finish(process, marker)
    assert code == 130


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["{model}", ""], "RT004"),
        (["{model}", QUESTION, "--output", "/nowhere/answer.wav"], "CL001"),
        (["{model}", QUESTION, "--output", "/"], "CL001"),
        (["{model}", QUESTION, "--timeout", "0"], "RT007"),
        (["no-such-model", QUESTION], "MD001"),
        (["{model}", QUESTION, "--devices", "8xH200"], "RT003"),
    ],
)
def test_what_is_wrong_is_told_before_anything_starts(
    voice_chat: Path, arguments: list[str], code: str
) -> None:
    """One clear diagnostic, exit code 1, no traceback, no stage started."""
    typed = [argument.format(model=voice_chat) for argument in arguments]
    status, out, err = stagemesh("run", *typed)
    assert (status, out) == (1, "")
    assert f"error[{code}]" in err
    assert "starting" not in err


def test_wrong_usage_has_its_own_exit_code(voice_chat: Path) -> None:
    """A missing question is wrong usage: exit code 2."""
    status, _, err = stagemesh("run", str(voice_chat))
    assert status == 2
    assert "QUESTION" in err
