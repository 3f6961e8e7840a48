"""Tiny checkpoints shared by the engine tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give the folder of a tiny checkpoint by kind; each is written once."""
    from tests.engines import tiny  # noqa: PLC0415  torch, which fast tests do without

    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = tiny.write_model(tmp_path_factory.mktemp(kind), kind)
        return made[kind]

    return folder
