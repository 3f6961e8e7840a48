"""A saved plan is run exactly, or refused before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.make import Made, make
from stagemesh.plan.save import to_json
from stagemesh.plan.saved import open_saved
from stagemesh.plan.values import Plan

HOST = Host(kind="cpu", count=None, memory_bytes=96 * 2**30)
CONFIG = Path(__file__).parents[1] / "fixtures" / "qwen2_5_omni" / "config.json"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint folder of its own."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_bytes(CONFIG.read_bytes())
    return folder


@pytest.fixture
def plan(checkpoint: Path) -> Plan:
    """A plan for that checkpoint."""
    made = make(PlanInputs(model=str(checkpoint)), HOST)
    assert made.plan is not None
    return made.plan


def codes(made: Made) -> list[str]:
    """Return what stands against running it."""
    assert made.plan is None
    return [found.code for found in made.diagnostics]


def test_an_unchanged_plan_is_opened(plan: Plan, tmp_path: Path) -> None:
    """Exactly as it was written."""
    file = tmp_path / "plan.json"
    file.write_text(to_json(plan), encoding="utf-8")
    assert open_saved(file, HOST) == Made(plan=plan, diagnostics=(), documents=())


def test_a_changed_checkpoint_is_refused(plan: Plan, checkpoint: Path, tmp_path: Path) -> None:
    """One other byte in its configuration is enough."""
    file = tmp_path / "plan.json"
    file.write_text(to_json(plan), encoding="utf-8")
    config = checkpoint / "config.json"
    config.write_bytes(config.read_bytes() + b"\n")
    assert codes(open_saved(file, HOST)) == ["PL042"]
    config.unlink()
    assert codes(open_saved(file, HOST))[0].startswith("MD")


def test_files_that_are_no_plans_are_refused(tmp_path: Path) -> None:
    """Missing, binary, and of another kind."""
    file = tmp_path / "plan.json"
    assert codes(open_saved(file, HOST)) == ["PL048"]
    file.write_bytes(b"\xff\xfe")
    assert codes(open_saved(file, HOST)) == ["PL048"]
    file.write_text(json.dumps({"answer": 42}), encoding="utf-8")
    assert codes(open_saved(file, HOST)) == ["PL040"]
