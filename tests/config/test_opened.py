"""Files of the user are read once, however often they are looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagemesh.config import opened as opened_module
from stagemesh.config.inputs import PlanInputs, opened_once
from stagemesh.config.opened import MAX_BYTES, OpenedFile, open_file
from stagemesh.config.validate import FileKind, check_files
from stagemesh.spec.unset import UNSET
from tests.cli.pipes import pipes

PLAN = b'{"version": 1, "pipeline": "show"'


def test_a_pipe_keeps_its_text() -> None:
    """Whoever looks again sees the same."""
    with pipes("async_chunk: true\n") as [name]:
        opened = open_file(name)
    assert opened == OpenedFile(name=name, content=b"async_chunk: true\n")
    assert str(opened) == name
    assert not opened.begins_like_a_plan


def test_a_pipe_that_is_validated_twice_is_read_once() -> None:
    """Both places show the same file."""
    with pipes("async_chunk: true\n") as [name]:
        checked = check_files([name, name])
    assert [file.kind for file in checked.files] == [FileKind.DEPLOY] * 2
    assert checked.diagnostics == ()


def test_a_saved_plan_is_read_to_its_end(tmp_path: Path) -> None:
    """It may be larger than a file that people write; others are left one byte too late."""
    rest = b" " * (2 * MAX_BYTES)
    for name, content, kept in (
        ("plan.json", PLAN + rest, len(PLAN) + len(rest)),
        ("other.json", b"{" + rest, MAX_BYTES + 1),
    ):
        (tmp_path / name).write_bytes(content)
        assert len(open_file(tmp_path / name).content) == kept
    assert len(open_file(tmp_path / "other.json", is_plan=True).content) == 1 + len(rest)
    with pipes((PLAN + rest).decode()) as [piped]:
        opened = open_file(piped)
    assert opened.begins_like_a_plan
    assert opened.content == PLAN + rest


def test_a_plan_without_end_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte after what may be."""
    monkeypatch.setattr(opened_module, "MAX_PLAN_BYTES", 2 * MAX_BYTES)
    (tmp_path / "plan.json").write_bytes(PLAN + b" " * (3 * MAX_BYTES))
    assert len(open_file(tmp_path / "plan.json").content) == 2 * MAX_BYTES + 1


@pytest.mark.parametrize(
    ("name", "problem", "is_missing"),
    [
        ("nothing.yaml", "no such file or directory", True),
        ("file.yaml/below.yaml", "not a directory", True),
        ("folder", "is a directory", False),
        ("x\0y", "embedded null byte", False),
        ("n" * 5000, "file name too long", False),
    ],
)
def test_what_cannot_be_read_says_why(
    name: str, problem: str, *, is_missing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is raised."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.yaml").write_text("{}", encoding="utf-8")
    opened = open_file(name)
    assert (opened.problem, opened.is_missing) == (problem, is_missing)


def test_inputs_are_opened_for_several_plans(tmp_path: Path) -> None:
    """Paths become what was read there; all else stays."""
    (tmp_path / "deploy.yaml").write_text("{}", encoding="utf-8")
    opened = opened_once(PlanInputs(model="m", deploy_config=tmp_path / "deploy.yaml"))
    assert isinstance(opened.deploy_config, OpenedFile)
    assert opened.deploy_config.content == b"{}"
    assert opened.strategy_config is UNSET
    assert opened_once(opened) == opened
    mapping = PlanInputs(model="m", strategy_config={"strategies": {}})
    assert opened_once(mapping) == mapping
