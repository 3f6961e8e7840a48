"""`stagemesh run` around the request: what is checked before, what is shown and written after.

The system that answers is a stand-in here; the real one is asked in tests/e2e.
"""

from __future__ import annotations

import json
import wave
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

import stagemesh.cli._run
from stagemesh.cli._main import main
from stagemesh.config.host import read_host
from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.make import make
from stagemesh.plan.save import to_json
from stagemesh.plan.sessions import SessionPlan
from stagemesh.plan.values import Plan
from stagemesh.runtime.audio import Audio
from stagemesh.runtime.outputs import OmniResult, StageProgress, StageReport, StageState
from stagemesh.runtime.telemetry import Observers, Outcome
from tests.runtime.talking import duplex_plan

CONFIG: Final = {"model_type": "voice_chat"}
SPOKEN: Final = Audio(samples=array("f", [0.5] * 44100).tobytes(), sampling_rate=22050)


def result(audio: Audio | None, text: str | None = " Paris. ") -> OmniResult:
    """What a system answers."""
    stages: tuple[tuple[str, dict[str, float]], ...] = (
        ("thinker", {"tokens": 8.0}),
        ("talker", {}),
        ("code2wav", {"audio_s": 2.0}),
    )
    return OmniResult(
        request_id="one",
        text=text,
        audio=audio,
        outputs=(),
        report=tuple(
            StageReport(
                stage=name,
                replicas=(0,),
                num_requests=1,
                seconds=0.5,
                first_output_s=None if not units else 0.25,
                units=units,
            )
            for name, units in stages
        ),
        seconds=1.5,
        first_output_s={"thinker": 0.25},
    )


class Answering:
    """Stands in for `Omni`: gives one answer, with news on the way."""

    answer: OmniResult

    def __init__(self, plan: Plan) -> None:
        """Take any plan."""
        self.plan = plan
        self.observers = Observers()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave nothing."""

    def generate(
        self, question: str, *, timeout_s: float, on_progress: Callable[[StageProgress], None]
    ) -> list[OmniResult]:
        """Answer after some news of every state."""
        assert question == "hi"
        assert timeout_s == 600.0
        self.observers.opened("one")
        self.observers.ended("one", Outcome.FINISHED, None)
        for state in StageState:
            on_progress(
                StageProgress(
                    request_id="one", stage="thinker", replica=0, state=state, units={"tokens": 3.0}
                )
            )
        return [self.answer]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A checkpoint folder that can be planned; its system is the stand-in."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    for stage in ("thinker", "talker", "code2wav"):
        (folder / stage).mkdir()
        (folder / stage / "model.safetensors").write_bytes(b"weights")
    monkeypatch.setattr(stagemesh.cli._run, "Omni", Answering)
    monkeypatch.chdir(tmp_path)
    Answering.answer = result(SPOKEN)
    return str(folder)


def test_the_answer_goes_to_standard_output_and_the_rest_beside_it(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Text alone on standard output; plan, progress and the final table on standard error."""
    assert main(["run", model, "hi", "--output", "answer.wav"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "Paris.\n"
    news, table = shown.err.split("all stages are ready\n")
    assert news.startswith("Plan for voice_chat: 3 stages")
    assert (
        table
        == """\
thinker: running 3 tokens
thinker: finished 3 tokens
thinker: failed 3 tokens

stage     requests  time    first output  work            real-time factor
thinker   1         0.50 s  0.25 s        8 tokens        -
talker    1         0.50 s  -             -               -
code2wav  1         0.50 s  0.25 s        2.0 s of audio  0.25
total 1.50 s; first output at the caller: thinker after 0.25 s
wrote 2.0 s of audio to answer.wav
"""
    )
    with wave.open("answer.wav", "rb") as file:
        assert (file.getnframes(), file.getframerate()) == (44100, 22050)


def test_under_json_standard_output_is_one_object(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Text, audio and report for programs."""
    assert main(["run", model, "hi", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["audio"] == {"file": None, "seconds": 2.0, "sampling_rate": 22050}
    assert [stage["stage"] for stage in answer["stages"]] == ["thinker", "talker", "code2wav"]


def test_without_audio_and_text_only_the_report_is_shown(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model may say nothing; under JSON both are null."""
    Answering.answer = result(None, None)
    assert main(["run", model, "hi"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["run", model, "hi", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["text"], answer["audio"]) == (None, None)


def test_an_answer_that_cannot_be_spoken_writes_no_file(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked for a file, nothing to put into it: an error, not an empty file."""
    Answering.answer = result(None)
    assert main(["run", model, "hi", "--output", "answer.wav"]) == 1
    assert "error[RT005]" in capsys.readouterr().err
    assert not Path("answer.wav").exists()


def test_a_file_that_fails_while_it_is_written_is_told(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk shows only then."""
    assert main(["run", model, "hi", "--output", "/dev/full"]) == 1
    shown = capsys.readouterr()
    assert "error[CL001]: `/dev/full` cannot be written: no space" in shown.err
    assert shown.out == "Paris.\n"


def test_a_timeline_is_written_when_it_is_asked_for(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file for trace viewers, which has the request."""
    assert main(["run", model, "hi", "--trace", "out.json"]) == 0
    assert "wrote the timeline to out.json\n" in capsys.readouterr().err
    events = json.loads(Path("out.json").read_text())["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "X"} == {"one", "queued"}


@pytest.mark.parametrize(("path", "starts"), [("/dev/full", True), ("nowhere/out.json", False)])
def test_a_timeline_that_cannot_be_written_is_told(
    model: str,
    path: str,
    starts: bool,  # noqa: FBT001  a column of the table
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before anything starts where that is known."""
    assert main(["run", model, "hi", "--trace", path]) == 1
    shown = capsys.readouterr().err
    assert "error[CL001]" in shown
    assert ("Plan for" in shown) is starts


@pytest.mark.parametrize("output", ["/", "nowhere/answer.wav", "locked/answer.wav"])
def test_a_file_that_cannot_be_written_is_told_before_anything_starts(
    model: str, output: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder, a missing folder, a folder without permission."""
    Path("locked").mkdir()
    monkeypatch.setattr("os.access", lambda *_given: False)
    assert main(["run", model, "hi", "--output", output]) == 1
    shown = capsys.readouterr().err
    assert "error[CL001]" in shown
    assert "starting" not in shown


def test_a_model_without_audio_has_no_file_to_write(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--output` is never ignored."""
    monkeypatch.setattr(stagemesh.cli._run, "_AUDIO", "video")
    assert main(["run", model, "hi", "--output", "answer.wav"]) == 1
    assert "error[CL005]" in capsys.readouterr().err


def test_a_permission_that_nobody_could_use_is_told(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No other start comes to one that runs everything itself."""
    assert main(["run", model, "hi", "--insecure-no-token"]) == 0
    assert "warning[RT025]: `--insecure-no-token` has no effect" in capsys.readouterr().err


def test_a_saved_plan_runs_as_it_is(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """MODEL may be a plan; a flag that would change it is refused."""
    made = make(PlanInputs(model=model), read_host())
    assert made.plan is not None
    Path("plan.json").write_text(to_json(made.plan), encoding="utf-8")
    assert main(["run", "plan.json", "hi"]) == 0
    assert capsys.readouterr().out == "Paris.\n"
    assert main(["run", "plan.json", "hi", "--devices", "3", "--no-async-chunk"]) == 1
    shown = capsys.readouterr().err
    assert "`--no-async-chunk` cannot change" in shown
    assert "`--devices` cannot change" in shown


def test_a_checkpoint_without_weights_is_planned_but_not_run(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its configuration alone is enough for a plan."""
    (Path(model) / "talker" / "model.safetensors").unlink()
    assert main(["plan", model]) == 0
    assert "cannot run   `talker`: the checkpoint has no weights" in capsys.readouterr().out
    assert main(["run", model, "hi"]) == 1
    assert "error[RT003]" in capsys.readouterr().err


def test_what_cannot_be_planned_is_not_run(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The planner's findings, as data too."""
    assert main(["run", model, "hi", "--devices", "none", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    assert [each["code"] for each in found] == ["PL001"]


def test_one_request_has_no_place_where_sessions_are_held(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is told before anything starts."""
    made = make(PlanInputs(model=model), read_host())
    assert made.plan is not None
    session = SessionPlan(mode="duplex", duplex=duplex_plan([(0,)]))
    talking = replace(made, plan=replace(made.plan, session=session))
    monkeypatch.setattr(stagemesh.cli._run, "made_from", lambda _namespace: talking)
    assert main(["run", model, "hi"]) == 1
    shown = capsys.readouterr().err
    assert "error[RT062]: requests of `voice_chat` are turns of sessions" in shown
    assert "Plan for" not in shown
