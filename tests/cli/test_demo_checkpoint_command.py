"""`stagemesh demo-checkpoint`: which recipes run, and what prevents them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import stagemesh.cli._demo_checkpoint
from stagemesh.cli._main import main


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEMESH_CACHE", str(tmp_path))


def recipe(monkeypatch: pytest.MonkeyPatch, work: Callable[[Path], None]) -> None:
    """Let every recipe do this instead."""

    def assemble(folder: Path, *, progress: Callable[[str], None]) -> Path:
        progress("half way")
        work(folder)
        return folder

    monkeypatch.setattr(stagemesh.cli._demo_checkpoint, "resolve", lambda _name: assemble)


def test_every_recipe_runs_and_its_folder_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Progress on standard error, the folder and the next command on standard output."""
    recipe(monkeypatch, lambda _folder: None)
    assert main(["demo-checkpoint"]) == 0
    shown = capsys.readouterr()
    folder = tmp_path / "voice_chat"
    assert shown.out == f"voice_chat: {folder}\nnext: stagemesh plan voice_chat\n"
    assert shown.err == "half way\n"
    assert main(["demo-checkpoint", "voice_chat", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"voice_chat": str(folder)}


def test_an_unknown_name_is_refused_with_those_that_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The nearest name is offered."""
    assert main(["demo-checkpoint", "voice_chta"]) == 1
    shown = capsys.readouterr().err
    assert "error[MD020]" in shown
    assert "did you mean `voice_chat`?" in shown


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ModuleNotFoundError("run `pip install onnx`"), "MD021"),
        (OSError("no space left"), "MD022"),
    ],
)
def test_what_prevents_it_is_told_with_the_reason(
    error: Exception,
    code: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A missing package, a full disk."""

    def fail(_folder: Path) -> None:
        raise error

    recipe(monkeypatch, fail)
    assert main(["demo-checkpoint"]) == 1
    shown = capsys.readouterr().err
    assert f"error[{code}]" in shown
    assert f"help: {error}" in shown
