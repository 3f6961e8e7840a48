"""The pages of `docs/reference/` say what the code says."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

import stagemesh.cli._reference
from stagemesh.cli._reference import PAGES, main
from stagemesh.cli._words import command_words
from stagemesh.plan.pages import codes
from stagemesh.spec.registry import AXES
from tests.architecture.source import ROOT


def test_the_committed_pages_are_up_to_date() -> None:
    """`python -m stagemesh.cli._reference` writes them."""
    assert main(["--check", "--folder", str(ROOT / "docs" / "reference")]) == 0


def test_pages_are_written_and_then_up_to_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing one and a changed one are named."""
    folder = tmp_path / "docs" / "reference"
    assert main(["--check", "--folder", str(folder)]) == 1
    assert len(capsys.readouterr().err.splitlines()) == len(PAGES)
    assert main(["--folder", str(folder)]) == 0
    assert main(["--check", "--folder", str(folder)]) == 0
    (folder / "codes.md").write_text("other", encoding="utf-8")
    assert main(["--check", "--folder", str(folder)]) == 1
    assert capsys.readouterr().err.startswith(f"{folder / 'codes.md'} is out of date: run `python")


def test_every_command_flag_code_and_axis_is_on_a_page() -> None:
    """Each on its own."""
    text = {name: page() for name, page in PAGES.items()}
    for command in command_words():
        assert f"## `stagemesh {command.name}`\n" in text["commands.md"]
        for flag in command.flags:
            if flag.names != ("-h", "--help"):
                assert all(f"`{name}" in text["commands.md"] for name in flag.names)
    assert all(f"/{code}.md): " in text["codes.md"] for code in codes())
    assert all(f"## `{axis.name}`\n" in text["axes.md"] for axis in AXES.declarations())


def test_it_runs_as_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the makefile calls it."""
    folder = str(ROOT / "docs" / "reference")
    monkeypatch.setattr(sys, "argv", ["reference", "--check", "--folder", folder])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(stagemesh.cli._reference.__file__, run_name="__main__")
    assert ended.value.code == 0
