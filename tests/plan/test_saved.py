"""A saved plan is run exactly, or refused before anything starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stagemesh.config import opened as opened_module
from stagemesh.config.host import Host
from stagemesh.plan import saved as saved_module
from stagemesh.plan.make import Made
from stagemesh.plan.save import to_json
from stagemesh.plan.saved import open_saved
from stagemesh.plan.values import DevicesPlan, Plan
from tests.plan.saving import CATALOG, HOST, planned_in


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A plan for a checkpoint of its own."""
    return planned_in(tmp_path)


def reopened(plan: Plan, folder: Path, host: Host = HOST) -> Made:
    """Save and open a plan."""
    file = folder / "plan.json"
    file.write_text(to_json(plan), encoding="utf-8")
    return open_saved(file, host, CATALOG)


def codes(made: Made) -> list[str]:
    """Return what stands against running it."""
    return [found.code for found in made.diagnostics]


def test_an_unchanged_plan_is_opened(plan: Plan, tmp_path: Path) -> None:
    """Exactly as it was written."""
    made = reopened(plan, tmp_path)
    assert (made.plan, made.diagnostics) == (plan, ())


def test_a_plan_can_be_looked_at_on_another_machine(plan: Plan, tmp_path: Path) -> None:
    """What it was made for is not asked for then; what it was made from still is."""
    other = replace(plan, devices=replace(plan.devices, kind="cuda"))
    file = tmp_path / "plan.json"
    file.write_text(to_json(other), encoding="utf-8")
    assert codes(open_saved(file, HOST, CATALOG)) == ["PL043"]
    made = open_saved(file, None, CATALOG)
    assert made.plan == other
    assert made.loaded is not None
    (tmp_path / "config.json").write_text('{"other": 1}', encoding="utf-8")
    assert open_saved(file, None, CATALOG).plan is None


def test_a_changed_checkpoint_is_refused(plan: Plan, tmp_path: Path) -> None:
    """One other byte in its configuration is enough."""
    config = tmp_path / "config.json"
    config.write_bytes(config.read_bytes() + b"\n")
    assert codes(reopened(plan, tmp_path)) == ["PL042"]
    assert reopened(plan, tmp_path).loaded is None
    config.unlink()
    assert codes(reopened(plan, tmp_path)) == ["MD004"]


@pytest.mark.parametrize(
    ("host", "found"),
    [
        (Host(kind="cuda", count=2, memory_bytes=None), ["PL043"]),
        (Host(kind="cpu", count=3, memory_bytes=None), ["PL044"]),
        (Host(kind="cpu", count=4, memory_bytes=None), []),
        (Host(kind="cpu", count=None, memory_bytes=99), ["PL045"]),
        (Host(kind="cpu", count=None, memory_bytes=None), []),
    ],
)
def test_another_machine_is_told(plan: Plan, tmp_path: Path, host: Host, found: list[str]) -> None:
    """Kind, number and memory of the devices."""
    assert codes(reopened(plan, tmp_path, host)) == found


def test_imaginary_devices_fit_every_machine(plan: Plan, tmp_path: Path) -> None:
    """The plan itself says that it cannot be run."""
    devices = DevicesPlan(kind="H200", count=8, memory_bytes=2**37, imaginary=True)
    reasons = ("the `H200` devices are imaginary",)
    imaginary = replace(plan, devices=devices, not_runnable=reasons)
    assert codes(reopened(imaginary, tmp_path)) == []


def test_files_that_are_no_plans_are_refused(tmp_path: Path) -> None:
    """Missing, binary, and of another kind."""
    file = tmp_path / "plan.json"
    assert codes(open_saved(file, HOST)) == ["PL048"]
    file.write_bytes(b"\xff\xfe")
    assert codes(open_saved(file, HOST)) == ["PL048"]
    file.write_text(json.dumps({"answer": 42}), encoding="utf-8")
    assert codes(open_saved(file, HOST)) == ["PL040"]


def test_an_unknown_variable_of_ours_is_refused(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is when planning."""
    monkeypatch.setenv("STAGEMESH_CASHE", "/x")
    assert codes(reopened(plan, tmp_path)) == ["CF051"]


def test_a_plan_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any of it is parsed."""
    for module in (opened_module, saved_module):
        monkeypatch.setattr(module, "MAX_PLAN_BYTES", 9)
    (tmp_path / "plan.json").write_text('{"version": 1}', encoding="utf-8")
    made = open_saved(tmp_path / "plan.json", None)
    [found] = made.diagnostics
    assert found.code == "PL048"
    assert found.message.endswith("cannot be read: it is larger than `9` bytes")
