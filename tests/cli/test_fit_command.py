"""`stagemesh plan --fit`: both streams, the exit code and the file that it writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

import stagemesh.cli._plan
from stagemesh.cli._main import main
from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.host import Host
from tests.plan.fit.fitting import installed
from tests.plan.fit.test_propose import SPEAKING

CATALOG: Final = installed(SPEAKING)
DEPLOY: Final = "pipeline: toy\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint of a speaking model that is installed, on a host of CPU slots."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "deploy.yaml").write_text(DEPLOY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    host = Host(kind="cpu", count=None, memory_bytes=96 * 2**30)
    monkeypatch.setattr(stagemesh.cli._plan, "read_host", lambda: host)
    monkeypatch.setattr(Catalog, "installed", lambda: CATALOG)


def fit(*arguments: str) -> int:
    """Run the command on the model of the folder."""
    return main(["plan", "model", "--deploy-config", "deploy.yaml", *arguments])


def test_the_best_layouts_are_shown_with_the_next_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Three, unless more or fewer are asked for."""
    assert fit("--fit", "8xH200") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("3 layouts for toy on 8 imaginary H200 devices, ranked by how many")
    assert shown.out.endswith("next: `-o strategy.yaml` writes the first as a strategy file\n")
    assert fit("--fit", "8xH200", "--fit-top", "1") == 0
    assert capsys.readouterr().out.startswith("1 layout for toy")


def test_the_written_file_says_where_it_is_from(capsys: pytest.CaptureFixture[str]) -> None:
    """And the flags that are shown plan it."""
    assert fit("--fit", "8xH200", "-o", "strategy.yaml") == 0
    flags = "--devices 8xH200 --strategy-config strategy.yaml"
    assert capsys.readouterr().out.endswith(
        f"wrote `strategy.yaml`; next: `{flags}` in place of `--fit` plans exactly that\n"
    )
    screen = Path(__file__).parent / "screens" / "fit_strategy.yaml"
    assert Path("strategy.yaml").read_text(encoding="utf-8") == screen.read_text(encoding="utf-8")
    assert fit(*flags.split()) == 0
    assert "stage_replica=5" in capsys.readouterr().out


def test_devices_of_the_models_own_file_are_in_nobodys_way(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The strategy alone plans what was proposed."""
    package = tmp_path / "shipped"
    (package / "deploy").mkdir(parents=True)
    (package / "__init__.py").touch()
    deploy = 'stages:\n  - {stage_id: 0, devices: "0"}\n'
    (package / "deploy" / "toy.yaml").write_text(deploy, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    shipped = replace(
        CATALOG, models=(Model(pipeline=CATALOG.models[0].pipeline, package="shipped"),)
    )
    monkeypatch.setattr(Catalog, "installed", lambda: shipped)
    (tmp_path / "model" / "config.json").write_text('{"model_type": "toy"}', encoding="utf-8")
    assert main(["plan", "model", "--fit", "8xH200", "-o", "strategy.yaml"]) == 0
    assert "thinker.devices" not in capsys.readouterr().out
    flags = ["--devices", "8xH200", "--strategy-config", "strategy.yaml"]
    assert main(["plan", "model", *flags]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "stage_replica=5" in shown.out
    assert "thinker: automatic; the model's own `devices` give way: `thinker` lists" in shown.out


def test_the_data_can_be_read_by_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    """Without anything else on the stream."""
    assert fit("--fit", "8xH200", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["proposals"]) == 3


def test_a_mistake_ends_with_its_diagnostics(capsys: pytest.CaptureFixture[str]) -> None:
    """As text or as data."""
    assert fit("--fit", "eight") == 1
    assert "error[PL001]: `--fit` takes a number" in capsys.readouterr().err
    assert fit("--fit", "eight", "--json") == 1
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    assert [each["code"] for each in found] == ["PL001"]


def test_two_ways_to_give_devices_are_one_too_many(capsys: pytest.CaptureFixture[str]) -> None:
    """`--fit` brings its own."""
    assert fit("--fit", "8xH200", "--devices", "4xH200") == 1
    assert "error[PL134]: `--devices` and `--fit` both give devices" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--as", "ray"], ["--values"]])
def test_layouts_are_not_plans(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One answer at a time."""
    assert fit("--fit", "8xH200", *flags) == 1
    told = f"error[CL013]: `--fit` proposes layouts, and `{flags[0]}` is about one plan\n"
    assert capsys.readouterr().err.startswith(told)


def test_a_narrow_screen_breaks_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As every other screen."""
    monkeypatch.setenv("COLUMNS", "72")
    assert fit("--fit", "8xH200") == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 72


def test_a_number_of_proposals_needs_proposals(capsys: pytest.CaptureFixture[str]) -> None:
    """It would be dropped where one plan is made."""
    assert fit("--devices", "8xH200", "--fit-top", "2") == 1
    told = "error[CL015]: `--fit-top` does nothing without `--fit`\n  --> --fit-top\n"
    assert capsys.readouterr().err.startswith(told)


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_a_number_of_proposals_is_at_least_one(
    number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage."""
    assert fit("--fit", "8xH200", "--fit-top", number) == 2
    assert "--fit-top" in capsys.readouterr().err
