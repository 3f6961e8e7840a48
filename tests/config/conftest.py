"""A folder with a checkpoint, which the test then runs in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.deploying import Show
from tests.config.speech import Speech


@pytest.fixture
def speech(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Speech:
    """Return a checkpoint of the speech pipeline; its folder is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STAGEMESH_CACHE", str(tmp_path / "cache"))
    return Speech(tmp_path)


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Show:
    """Return a folder with a checkpoint of the pipeline of every kind; it is the current one."""
    return Show(tmp_path, monkeypatch)
