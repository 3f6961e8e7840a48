"""`stagemesh diff`: saved plans, exit codes, data, and trouble of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from stagemesh.cli._main import main
from tests.cli.pipes import pipes
from tests.cli.screens import stand_in

STRATEGY: Final = "strategies:\n  thinker:\n    - {axis: tp, size: 3}\n"
DEPLOY: Final = "stages:\n  - {stage_id: 0, max_num_seqs: 4}\n"
PLANNED: Final = ("--model", "voice_chat", "--devices", "8xH200")


@pytest.fixture(autouse=True)
def _folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(tmp_path, monkeypatch)
    (tmp_path / "strategy.yaml").write_text(STRATEGY, encoding="utf-8")
    (tmp_path / "deploy.yaml").write_text(DEPLOY, encoding="utf-8")
    save("own.json")
    save("tp.json", "--strategy-config", "strategy.yaml")
    capsys.readouterr()


def save(name: str, *layout: str) -> None:
    """Plan and save."""
    assert main(["plan", "voice_chat", "--devices", "8xH200", *layout, "-o", name]) == 0


def test_saved_plans_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """By what they decide."""
    assert main(["diff", "own.json", "tp.json"]) == 1
    shown = capsys.readouterr()
    assert "  axes              - => tp=3\n  ranks x replicas  1 x 1 => 3 x 1\n" in shown.out
    assert shown.err == ""


def test_the_same_plans_leave_zero(capsys: pytest.CaptureFixture[str]) -> None:
    """A file against its own plan, too."""
    assert main(["diff", "tp.json", "strategy.yaml", *PLANNED]) == 0
    assert capsys.readouterr().out.startswith("tp.json and strategy.yaml say the same\n")


def test_data_has_both_names_and_every_difference(capsys: pytest.CaptureFixture[str]) -> None:
    """In one shape, whatever was compared."""
    Path("other.yaml").write_text(DEPLOY.replace("4", "5"), encoding="utf-8")
    assert main(["diff", "deploy.yaml", "other.yaml", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "before": "deploy.yaml",
        "after": "other.yaml",
        "same": False,
        "differences": [{"where": "stages.0", "what": "max_num_seqs", "before": 4, "after": 5}],
    }
    assert main(["diff", "deploy.yaml", "deploy.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["same"] is True


def test_two_deploy_files_are_planned_under_one_strategy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is given beside them holds for both."""
    Path("other.yaml").write_text("stages: []\n", encoding="utf-8")
    layout = ("--strategy-config", "strategy.yaml")
    assert main(["diff", "deploy.yaml", "other.yaml", *PLANNED, *layout, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["differences"]
    assert {(each["where"], each["what"]) for each in found} == {
        ("thinker", "max_num_seqs"),
        ("thinker", "memory of a rank"),
    }


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["own.json", "deploy.yaml"], "CL022"),
        (["deploy.yaml", "strategy.yaml"], "CL022"),
        (["deploy.yaml", "deploy.yaml", *PLANNED, "--deploy-config", "deploy.yaml"], "CL022"),
        (["strategy.yaml", "own.json", *PLANNED, "--strategy-config", "strategy.yaml"], "CL022"),
        (["nowhere.yaml", "deploy.yaml"], "CF001"),
        (["own.json", "broken.yaml"], "CF002"),
        (["own.json", "broken.json"], "CF002"),
        (["own.json", "old.json"], "PL041"),
        (["deploy.yaml", "deploy.yaml", "--model", "nothing"], "MD001"),
        (["wrong.yaml", "deploy.yaml", *PLANNED], "CF010"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_trouble_leaves_two(
    arguments: list[str],
    code: str,
    as_json: bool,  # noqa: FBT001  a column of the table
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So that it is never taken for a difference; as text or as data."""
    Path("broken.yaml").write_text("a: [", encoding="utf-8")
    plan = Path("own.json").read_text(encoding="utf-8")
    Path("broken.json").write_text(plan[:-4], encoding="utf-8")
    Path("old.json").write_text('{"version": 0, "checkpoint": {}}', encoding="utf-8")
    Path("wrong.yaml").write_text("nonsense: 1\n", encoding="utf-8")
    assert main(["diff", *arguments, *(["--json"] if as_json else [])]) == 2
    shown = capsys.readouterr()
    if as_json:
        assert [each["code"] for each in json.loads(shown.out)["diagnostics"]][:1] == [code]
    else:
        assert (shown.out, shown.err.startswith(f"error[{code}]")) == ("", True)


@pytest.mark.parametrize(
    ("arguments", "code", "refused"),
    [
        (
            ["own.json", "tp.json", "--devices", "bad", "--set", "a", "--deploy-config", "no.yaml"],
            "CL002",
            ["--deploy-config", "--devices", "--set"],
        ),
        (["own.json", "tp.json", "--model", "nothing", "--tp", "2"], "CL010", ["--tp"]),
        (["own.json", "tp.json", "--model", "nothing"], "CL002", ["--model"]),
        (["deploy.yaml", "deploy.yaml", "--devices", "bad"], "CL015", ["--devices"]),
        (["own.json", "deploy.yaml", "--devices", "bad"], "CL015", ["--devices"]),
        (["deploy.yaml", "deploy.yaml", "--async-chunk"], "CL015", ["--async-chunk"]),
    ],
)
def test_flags_with_which_nothing_is_planned_are_refused(
    arguments: list[str], code: str, refused: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Both sides would seem to follow them; each is told at itself."""
    assert main(["diff", *arguments, "--json"]) == 2
    told = json.loads(capsys.readouterr().out)["diagnostics"]
    assert [(each["code"], each["origin"]["source"]) for each in told] == [
        (code, flag) for flag in refused
    ]


def test_flags_hold_for_the_side_that_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    """A saved plan beside it stays as it is."""
    assert main(["diff", "own.json", "deploy.yaml", *PLANNED]) == 1
    assert capsys.readouterr().err == ""


def test_pipes_are_read_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Files and saved plans, and what is given for both sides."""
    other = DEPLOY.replace("4", "5")
    plan = Path("own.json").read_text("utf-8")
    for texts, planned, code in (
        ((DEPLOY, other), (), 1),
        ((DEPLOY, DEPLOY), PLANNED, 0),
        ((DEPLOY, other), PLANNED, 1),
        ((plan, plan), (), 0),
        ((plan, STRATEGY), PLANNED, 1),
    ):
        with pipes(*texts) as names:
            assert main(["diff", *names, *planned]) == code
        assert capsys.readouterr().err == ""
    with pipes(DEPLOY, other, STRATEGY) as (before, after, strategy):
        assert main(["diff", before, after, *PLANNED, "--strategy-config", strategy]) == 1
    shown = capsys.readouterr()
    assert "  max_num_seqs      4 => 5\n" in shown.out
    assert shown.err == ""


def test_a_value_that_null_takes_back_is_a_difference(capsys: pytest.CaptureFixture[str]) -> None:
    """In what files say, and in what follows from it."""
    Path("null.yaml").write_text(DEPLOY.replace("4", "null"), encoding="utf-8")
    assert main(["diff", "deploy.yaml", "null.yaml"]) == 1
    assert "max_num_seqs  4 => null" in capsys.readouterr().out
    assert main(["diff", "deploy.yaml", "null.yaml", *PLANNED]) == 1
    assert "max_num_seqs      4 => 64" in capsys.readouterr().out
