"""Any bytes can be typed: what is no text is refused, and nothing shown moves the cursor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stagemesh.cli._main import main
from stagemesh.spec.registry import COMMANDS

NO_TEXT = "caf\udce9"
HOSTILE = "a\x1b[31mb\x07\x9b\rc\u202e"
PART = "[31mb"


@pytest.mark.parametrize("command", [each.name for each in COMMANDS.declarations()])
def test_an_argument_that_is_no_text_is_refused_by_every_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the command looks at it: no screen, file or JSON could hold it."""
    assert main([command, NO_TEXT, "fine", NO_TEXT]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("error[CL016]: argument `caf?` is not UTF-8\n") == 2
    assert "help: `?` stands for what cannot be read; type it again, or rename the file" in (
        shown.err
    )


def test_what_is_no_text_is_data_when_data_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Which is UTF-8 itself."""
    assert main(["plan", f"--{NO_TEXT}", "--json"]) == 2
    [found] = json.loads(capsys.readouterr().out)["diagnostics"]
    assert (found["code"], found["message"]) == ("CL016", "argument `--caf?` is not UTF-8")


def test_no_command_is_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    """The first word is an argument as well."""
    assert main([NO_TEXT]) == 2
    assert "error[CL016]" in capsys.readouterr().err


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A deploy file whose name and values would change the terminal."""
    monkeypatch.chdir(tmp_path)
    name = f"{HOSTILE}.yaml"
    text = 'async_chunk: "\\e[31m"\nstages: [{stage_id: "\\e[2J", "\\u009b": 1}]\n'
    Path(name).write_text(text, encoding="utf-8")
    Path("other.yaml").write_text("stages: []\n", encoding="utf-8")
    return name


@pytest.mark.parametrize(
    "arguments",
    [
        [HOSTILE],
        ["plan", HOSTILE],
        ["plan", "m", f"--{HOSTILE}"],
        ["plan", "m", "--set", f"{HOSTILE}.a={HOSTILE}"],
        ["list", HOSTILE],
        ["doctor", HOSTILE],
        ["explain", HOSTILE],
        ["demo-checkpoint", HOSTILE],
        ["validate", f"{HOSTILE}.yaml"],
        ["diff", f"{HOSTILE}.yaml", "other.yaml"],
        ["diff", "other.yaml", f"{HOSTILE}.yaml"],
    ],
)
@pytest.mark.usefixtures("hostile")
def test_nothing_that_is_shown_moves_the_cursor(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever it comes from: arguments, names of files, keys and values."""
    main(arguments)
    shown = "".join(capsys.readouterr())
    assert PART in shown
    assert all(char.isprintable() for char in shown.replace("\n", ""))


def test_data_holds_names_as_they_are(hostile: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A program needs the name that opens the file."""
    assert main(["validate", hostile, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["files"][0]["path"] == hostile
