"""Files that a flag asks for are judged before anything is done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stagemesh.cli._screen import check_writable


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def messages(path: str) -> list[str]:
    """Judge a path given by `--output`."""
    found = check_writable(path, "--output")
    assert {str(each.origin) for each in found} <= {"--output"}
    return [each.message for each in found]


def test_a_new_file_and_an_old_one_can_be_written(tmp_path: Path) -> None:
    """Neither is touched by asking."""
    (tmp_path / "old.wav").write_bytes(b"old")
    assert messages("new.wav") == messages("old.wav") == []
    assert [each.name for each in tmp_path.iterdir()] == ["old.wav"]
    assert (tmp_path / "old.wav").read_bytes() == b"old"


def test_a_folder_is_no_file() -> None:
    """Not even the current one."""
    assert messages(".") == ["`.` cannot be written: it is a folder"]


def test_a_missing_folder_is_named() -> None:
    """It is not made silently."""
    assert messages("a/b.wav") == ["`a/b.wav` cannot be written: the folder `a` does not exist"]


def test_a_protected_folder_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may write everywhere, so the system is asked for show."""
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    assert messages("new.wav") == ["`new.wav` cannot be written: permission denied"]
