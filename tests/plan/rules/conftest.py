"""A toy of every test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plan.rules.toys import Toy


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """One autoregressive stage, `s0`, on a CPU host."""
    return Toy(folder=tmp_path)
