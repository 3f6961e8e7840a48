"""Screens as files: both streams and the exit code of a command, at a width.

`UPDATE_SCREENS=1` writes the files anew instead of comparing them; look at the difference then.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from stagemesh.cli._main import main

FOLDER: Final = Path(__file__).parent / "screens"
FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
WIDTHS: Final = (120, 60)
"""Columns at which every screen is kept."""


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder where the fixture checkpoints lie, with nothing of this machine in sight."""
    for fixture in FIXTURES.iterdir():
        (folder / fixture.name).symlink_to(fixture)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("STAGEMESH_CACHE", str(folder / "cache"))
    monkeypatch.delenv("COLUMNS", raising=False)


def screen(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command, and write down everything that it leaves."""
    code = main(arguments)
    shown = capsys.readouterr()
    parts = [f"exit code {code}\n", "--- standard output\n", shown.out]
    return "".join([*parts, "--- standard error\n", shown.err])


def check_screen(name: str, text: str) -> None:
    """Compare a screen with the file that is kept of it."""
    file = FOLDER / f"{name}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        FOLDER.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert file.is_file(), f"no screen `{name}` yet: UPDATE_SCREENS=1 writes it"
    assert text == file.read_text(encoding="utf-8")


def too_wide(text: str, width: int) -> list[str]:
    """Lines that are wider than the screen although they have a blank to be broken at.

    Lines of a file, commands and single long words are shown as they are.
    """
    return [
        line
        for line in text.splitlines()
        if len(line) > width and " " in line.strip()[: width - 8] and not line.startswith("    ")
    ]
