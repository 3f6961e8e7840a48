"""Every command that reads the environment tells a misspelt variable of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from stagemesh.cli._main import main

ROOM: Final = ["--devices", "4xH200"]
FIXTURE: Final = str(Path(__file__).parents[1] / "fixtures" / "qwen2_5_omni")


@pytest.mark.parametrize(
    "command", [["plan", FIXTURE, *ROOM], ["run", FIXTURE, "hello", *ROOM], ["demo-checkpoint"]]
)
def test_an_unknown_variable_is_an_error(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would silently do nothing."""
    monkeypatch.setenv("STAGEMESH_CASHE", "/x")
    assert main([*command, "--json"]) == 1
    assert codes(capsys) == ["CF051"]


def test_a_malformed_variable_is_told_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though looking for the model meets it too."""
    monkeypatch.setenv("STAGEMESH_CACHE", "relative")
    assert main(["plan", "nonsense", "--json"]) == 1
    assert codes(capsys) == ["CF050"]


def codes(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was told as data."""
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    return [each["code"] for each in found]
