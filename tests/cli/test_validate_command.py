"""`stagemesh validate`: exit codes, formats, saved plans, and what a file is checked against."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

import stagemesh.cli._validate
from stagemesh.cli._main import main
from stagemesh.config.validate import CheckedFile, FileKind
from tests.cli.pipes import pipes
from tests.cli.screens import stand_in

GOOD: Final = "stages:\n  - {stage_id: 0, max_num_seqs: 4}\n"
BAD: Final = "stages:\n  - {stage_id: 7, max_num_seq: 4}\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch)
    (tmp_path / "good.yaml").write_text(GOOD, encoding="utf-8")
    (tmp_path / "bad.yaml").write_text(BAD, encoding="utf-8")


def codes(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Codes of what is found in all files together."""
    main(["validate", *arguments, "--json"])
    files = json.loads(capsys.readouterr().out)["files"]
    return [found["code"] for file in files for found in file["diagnostics"]]


def test_data_tells_each_file_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """And whether all of them are valid."""
    assert main(["validate", "good.yaml", "bad.yaml", "--format", "json"]) == 1
    shown = capsys.readouterr()
    assert shown.err == ""
    found = json.loads(shown.out)
    assert found["valid"] is False
    good, bad = found["files"]
    assert good == {
        "path": "good.yaml",
        "kind": "deploy",
        "pipeline": None,
        "valid": True,
        "diagnostics": [],
    }
    assert bad["valid"] is False
    assert set(bad["diagnostics"][0]) == {"code", "severity", "message", "origin", "notes", "help"}


def test_a_known_pipeline_shows_more(capsys: pytest.CaptureFixture[str]) -> None:
    """By its name, or by a checkpoint of it."""
    assert codes(capsys, "bad.yaml") == ["CF010"]
    assert codes(capsys, "bad.yaml", "--pipeline", "voice_chat") == ["CF020", "CF010"]
    assert codes(capsys, "bad.yaml", "--model", "voice_chat") == ["CF020", "CF010"]


def test_github_gets_annotations_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, and none for valid files."""
    assert main(["validate", "good.yaml", "bad.yaml", "--format", "github"]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("::error file=bad.yaml,line=2,col=19,title=CF010::unknown key")
    assert (shown.out.count("\n"), shown.err) == (1, "")
    assert main(["validate", "good.yaml", "--format", "github"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["good.yaml", "--format", "xml"],
        ["good.yaml", "--format", "github", "--json"],
        ["good.yaml", "--pipeline", "voice_chat", "--model", "voice_chat"],
        ["good.yaml", "--pipeline", "nothing"],
        ["good.yaml", "--model", "nothing"],
        ["good.yaml", "--model", "nothing", "--json"],
    ],
)
def test_wrong_usage_leaves_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A pipeline or a model that does not exist is no fault of the files."""
    assert main(["validate", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out + shown.err != ""


def test_warnings_leave_a_file_valid(capsys: pytest.CaptureFixture[str]) -> None:
    """They are told all the same."""
    text = f"{GOOD}connectors:\n  shm: {{name: SharedMemoryConnector}}\n"
    Path("good.yaml").write_text(text, encoding="utf-8")
    assert main(["validate", "good.yaml", "--pipeline", "voice_chat"]) == 0
    assert "1 file: 1 valid, 0 invalid" in capsys.readouterr().out


def test_a_saved_plan_is_planned_again(capsys: pytest.CaptureFixture[str]) -> None:
    """For the machine that it was made for, which need not be this one."""
    assert main(["plan", "voice_chat", "--devices", "8xH200", "-o", "plan.json"]) == 0
    capsys.readouterr()
    assert main(["validate", "plan.json", "good.yaml"]) == 0
    shown = capsys.readouterr().out
    assert "valid    plan.json  saved plan for voice_chat\n" in shown
    assert "\nnext: `--pipeline NAME` checks" in shown
    text = Path("plan.json").read_text(encoding="utf-8")
    edited = text.replace('"max_num_seqs": 8', '"max_num_seqs": 0', 1)
    Path("plan.json").write_text(edited, encoding="utf-8")
    assert main(["validate", "plan.json"]) == 1
    assert "invalid  plan.json  saved plan\n" in capsys.readouterr().out


def test_a_saved_plan_is_run_next_or_says_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of it is left to be planned."""
    assert main(["plan", "voice_chat", "--devices", "8xH200", "-o", "plan.json"]) == 0
    capsys.readouterr()
    assert main(["validate", "plan.json"]) == 0
    shown = capsys.readouterr().out
    assert '\nnext: `stagemesh run plan.json "..."` says why it cannot run yet\n' in shown
    assert main(["run", "plan.json", "why"]) == 1
    assert "cannot be run: the `H200` devices are imaginary\n" in capsys.readouterr().err
    blocked = CheckedFile(path="a.json", kind=FileKind.PLAN, pipeline="p", not_runnable=("so",))
    runs = replace(blocked, path="my plan.json", not_runnable=())
    following = stagemesh.cli._validate._next((blocked, runs), None)
    assert following == "`stagemesh run 'my plan.json' \"...\"` runs exactly that plan"


def test_pipes_are_read_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Deploy files, strategy files and saved plans, whatever is looked at first."""
    assert main(["plan", "voice_chat", "--devices", "8xH200", "-o", "plan.json"]) == 0
    capsys.readouterr()
    texts = [GOOD, "strategies: {thinker: []}\n", (tmp_path / "plan.json").read_text("utf-8"), BAD]
    with pipes(*texts) as names:
        assert main(["validate", *names, "--json"]) == 1
    files = json.loads(capsys.readouterr().out)["files"]
    assert [(file["kind"], file["valid"]) for file in files] == [
        ("deploy", True),
        ("strategy", True),
        ("plan", True),
        ("deploy", False),
    ]
