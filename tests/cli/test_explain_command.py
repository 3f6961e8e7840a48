"""`stagemesh explain`: what it gives as data, and what its screens do not show."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from stagemesh.cli._main import main
from stagemesh.plan.pages import page_of
from tests.cli.pipes import pipes
from tests.cli.screens import stand_in

Json: TypeAlias = Any
"""A value as a program reads it."""

STRATEGY: Final = "strategies:\n  thinker:\n    - {axis: tp, size: 3}\n"
LAYOUT: Final = ("voice_chat", "--strategy-config", "strategy.yaml", "--devices", "8xH200")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch)
    (tmp_path / "strategy.yaml").write_text(STRATEGY, encoding="utf-8")


def data(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Json:
    """What a command gives with `--json`."""
    assert main(["explain", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_code_is_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    """In whatever case it was typed, and whatever stands behind it is a mistake of its own."""
    page = page_of("CF010")
    assert data(capsys, "cf010") == {
        "code": {
            "code": "CF010",
            "title": page.title,
            "why": page.why,
            "example": page.example,
            "fix": page.fix,
        }
    }


def test_axis_alone_lists_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    """As `list axes` does, and says how one is explained."""
    assert main(["list", "axes", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert data(capsys, "axis") == listed
    assert main(["explain", "axis"]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith("next: `stagemesh explain axis NAME` tells all of one\n")
    assert "sp_ulysses" in shown


def test_an_axis_in_other_letters_is_told_with_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Case alone is never the reason why nothing is near."""
    for arguments, meant in (
        (("axis", "TP"), "did you mean `tp`?"),
        (("thinker.TP", *LAYOUT), "did you mean `thinker.tp`?"),
        (("MAX_NUM_SEQS",), "did you mean `max_num_seqs`?"),
    ):
        [found] = data(capsys, *arguments, code=1)["diagnostics"]
        assert found["code"] == "CL021"
        assert found["help"].startswith(meant)


def test_a_word_that_nothing_is_near_may_be_a_stage(capsys: pytest.CaptureFixture[str]) -> None:
    """The way to explain one is shown, and what is too long to be one is cut."""
    [found] = data(capsys, "x" * 400, code=1)["diagnostics"]
    assert found["message"] == f"`{'x' * 39}…` is no code and no field"
    assert found["help"].endswith("is explained with MODEL behind it")


def test_an_axis_is_all_that_is_known_about_it(capsys: pytest.CaptureFixture[str]) -> None:
    """One key for each row of its screen."""
    found = data(capsys, "axis", "stage_pp")["axis"]
    assert found["name"] == "stage_pp"
    assert [each["name"] for each in found["options"]] == ["unit"]
    assert set(found) == {
        "name",
        "summary",
        "fits",
        "ranks",
        "routing",
        "owner",
        "policies",
        "needs",
        "pairs",
        "options",
        "deploy_fields",
        "flags",
        "executed_by",
        "example",
    }


def test_an_axis_that_there_is_not_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """All of them are listed; an empty name is none."""
    [found] = data(capsys, "axis", "", code=1)["diagnostics"]
    assert found["code"] == "CL021"
    assert "`stage_replica`" in found["help"]


def test_a_field_is_what_its_owners_say(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with type and default."""
    found = data(capsys, "tp.size")["field"]
    assert set(found) == {
        "path",
        "written",
        "is_common",
        "kinds",
        "flags",
        "declarations",
        "is_member",
    }
    [said] = found["declarations"]
    assert set(said) == {"owner", "type", "required", "default", "doc", "members"}
    assert (said["owner"], said["required"], said["default"]) == ("axis `tp`", True, None)


@pytest.mark.parametrize(
    ("path", "next_command"),
    [
        ("async_chunk", "`stagemesh explain async_chunk MODEL`"),
        ("devices", "`stagemesh explain STAGE.devices MODEL`"),
        ("thinker.tp", "`stagemesh explain thinker.tp MODEL`"),
        ("api_server_count", "`stagemesh plan --help-all`"),
    ],
)
def test_a_field_leads_to_its_value(
    path: str, next_command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a stage where it needs one."""
    assert main(["explain", path]) == 0
    assert f"next: {next_command} " in capsys.readouterr().out


def test_a_value_is_every_word_about_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Highest first."""
    found = data(capsys, "thinker.tp", *LAYOUT)["value"]
    names = {"path", "topic", "value", "type", "doc", "words", "needs", "goes_to", "is_planned"}
    assert set(found) == names
    assert found["words"] == [
        {"layer": "strategy file", "place": "strategy.yaml:3:24", "value": 3, "verdict": "wins"},
        {"layer": "default", "place": "default", "value": 1, "verdict": "overridden"},
    ]


def test_a_stage_is_all_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    """With the places they come from."""
    found = data(capsys, "thinker", *LAYOUT)["values"]
    values = {each["path"]: each for each in found}
    assert set(values["thinker.tp"]) == {
        "path",
        "value",
        "layer",
        "origin",
        "is_default",
        "superseded",
        "clears",
    }
    assert values["thinker.tp"]["value"] == 3
    assert values["thinker.num_threads"]["is_default"] is True


@pytest.mark.parametrize(
    ("what", "path"),
    [
        ("edges", "edges.0-1.connector"),
        ("edges.thinker-talker", "edges.0-1.max_inflight"),
        ("stages", "code2wav.max_num_seqs"),
        ("launch", "launch.api_server_count"),
    ],
)
def test_what_holds_more_is_listed(
    what: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With values and places."""
    assert path in [each["path"] for each in data(capsys, what, *LAYOUT)["values"]]


@pytest.mark.parametrize(
    ("what", "help_text"),
    [
        ("connectors.x", "no connector is named; what the edges have is below `edges`"),
        ("thinker.env.FOO", "`thinker.env` has no members"),
        ("THINKER.TP", "did you mean `thinker.tp`? stages of this plan: "),
    ],
)
def test_what_is_not_there_is_a_mistake(
    what: str, help_text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is made up for it, and the nearest is named."""
    [found] = data(capsys, what, *LAYOUT, code=1)["diagnostics"]
    assert (found["code"], found["message"]) == ("CL021", f"`{what}` is no value of this plan")
    assert found["help"].startswith(help_text)


def test_a_saved_plan_may_come_through_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """And tells what `null` took back as the plan itself does."""
    typed = ("voice_chat", "--devices", "8xH200", "--set", "thinker.max_num_seqs=null")
    assert main(["plan", *typed, "-o", "plan.json"]) == 0
    capsys.readouterr()
    with pipes(Path("plan.json").read_text("utf-8")) as [name]:
        found = data(capsys, "thinker.max_num_seqs", name)["value"]
    assert [word["verdict"] for word in found["words"]] == ["clears", "overridden", "wins"]
    assert found["words"][0]["place"] == "--set thinker.max_num_seqs=null"
    assert main(["explain", "thinker", *typed]) == 0
    shown = capsys.readouterr().out
    assert "thinker.max_num_seqs = 64" in shown
    assert "default, since stage: --set thinker.max_num_seqs=null takes back 8 of" in shown


def test_a_layout_that_does_not_fit_is_explained_as_far_as_it_goes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What stands against it goes to standard error, and the exit code says so."""
    Path("strategy.yaml").write_text(STRATEGY.replace("3", "2"), encoding="utf-8")
    assert main(["explain", "thinker.tp", *LAYOUT]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("thinker.tp = 2 ")
    assert "sizes up to 64 that fit `thinker`: 1, 3\n" in shown.out
    assert "error[AX030]" in shown.err


@pytest.fixture
def failing() -> tuple[str, ...]:
    """A layout against which something stands."""
    Path("strategy.yaml").write_text(STRATEGY.replace("3", "2"), encoding="utf-8")
    return (*LAYOUT, "--max-num-seqs", "5", "--set", "talker.seed=null")


def test_without_a_plan_only_what_was_given_is_told(
    failing: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a default of the engine nor who acts on the value: no engine runs it yet."""
    found = data(capsys, "thinker.max_num_seqs", *failing, code=1)["value"]
    assert found["words"][0]["layer"] == "flag for all stages"
    assert "default" not in [word["layer"] for word in found["words"]]
    assert (found["value"], found["goes_to"], found["is_planned"]) == (5, "", False)
    assert main(["explain", "thinker.max_num_seqs", *failing]) == 1
    shown = capsys.readouterr().out
    assert "\nholds  not yet: there is no plan, this is what was given\n" in shown
    assert "goes to" not in shown
    assert main(["explain", "thinker", *failing]) == 1
    assert "\nthere is no plan: these are the values that were given\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "what",
    [
        "edges",
        "edges.0-1.arena_bytes",
        "connectors",
        "session_mode",
        "duplex_session.max_sessions",
        "checkpoint",
        "init_timeout",
        "thinker.pp",
        "thinker.seed",
        "thinker.world_size",
    ],
)
def test_what_a_plan_would_decide_is_not_denied_without_one(
    what: str, failing: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """What stands against the plan is told, and nothing is made up."""
    found = data(capsys, what, *failing, code=1)
    assert [each["code"] for each in found["diagnostics"]] == ["AX030"]
    assert main(["explain", what, *failing]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith(f"there is no plan, and `{what}` is known once there is one\n")
    assert "error[AX030]" in shown.err


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("thinker.pp", "\n\npp\n\nwritten in  an entry of a strategy file"),
        ("thinker.seed", "\n\nseed\n\nwritten in  "),
        ("session_mode", "\n\nsession_mode\n\nwritten in  the root of a deploy file"),
    ],
)
def test_a_field_that_nobody_gave_is_shown_beside_what_stands_against_the_plan(
    what: str, shown: str, failing: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """What it is and what it is by default is known without any plan."""
    assert main(["explain", what, *failing]) == 1
    assert shown in capsys.readouterr().out


def test_a_field_is_shown_beside_what_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    """No value is made up: only what the field is stands there."""
    Path("strategy.yaml").write_text("strategies: 1\n", encoding="utf-8")
    assert main(["explain", "thinker.dtype", *LAYOUT]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("\ndtype\n\nwritten in  ")
    assert "error[CF012]" in shown.err


@pytest.mark.parametrize(
    ("what", "help_text"),
    [
        ("thinker.tpp", "did you mean `thinker.tp`?"),
        ("base_config", "it is about a file; what it leads to are values of stages and the"),
        ("arena_bytes", "stages of this plan: `thinker`, `talker`, `code2wav`"),
    ],
)
def test_what_no_plan_would_have_is_told_beside_what_stands_against_it(
    what: str, help_text: str, failing: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """No answer hides the mistake in the layout; and no edge is said not to be there."""
    found = data(capsys, what, *failing, code=1)["diagnostics"]
    assert [each["code"] for each in found] == ["AX030", "CL021"]
    assert found[1]["help"].startswith(help_text)


def test_files_that_cannot_be_read_are_told_first(capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing to explain yet."""
    Path("strategy.yaml").write_text("strategies: 1\n", encoding="utf-8")
    found = data(capsys, "thinker.tp", *LAYOUT, code=1)
    assert [each["code"] for each in found["diagnostics"]] == ["CF012"]


def test_a_saved_plan_is_explained_wherever_it_was_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """This machine is not asked; flags beside it would change nothing."""
    assert main(["plan", *LAYOUT, "-o", "plan.json"]) == 0
    capsys.readouterr()
    monkeypatch.setattr("stagemesh.cli._making.read_host", None)
    assert data(capsys, "thinker.tp", "plan.json")["value"]["value"] == 3
    assert main(["explain", "thinker.tp", "plan.json", "--devices", "2"]) == 1
    assert "error[CL002]: `--devices` cannot change the saved plan" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["thinker.tp", "thinker.devices", "thinker.pp", "edges", "nope"])
def test_a_saved_plan_that_no_longer_holds_is_not_explained(
    what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the checkpoint says now is not what the plan was made from."""
    folder = Path("own")
    shutil.copytree("voice_chat", folder)
    assert main(["plan", str(folder), *LAYOUT[1:], "-o", "plan.json"]) == 0
    capsys.readouterr()
    config = folder / "config.json"
    config.write_bytes(config.read_bytes() + b"\n")
    found = data(capsys, what, "plan.json", code=1)
    assert [each["code"] for each in found["diagnostics"]] == ["PL042"]
