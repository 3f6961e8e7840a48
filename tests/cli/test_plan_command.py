"""`stagemesh plan`: both streams and the exit code."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

import pytest

import stagemesh.cli._plan
from stagemesh.cli._arguments import add_plan_arguments, inputs_from
from stagemesh.cli._main import main
from stagemesh.cli.plan import FORMS
from stagemesh.config.catalog import Catalog
from stagemesh.config.host import Host
from stagemesh.config.inputs import GivenField, PlanInputs
from stagemesh.plan.export.formats import FORMATS
from stagemesh.plan.make import make
from stagemesh.plan.save import from_json
from stagemesh.plan.values import Plan
from tests.plan.making import planned, request, solo

FIXTURE: Final = str(Path(__file__).parents[1] / "fixtures" / "qwen2_5_omni")
HOST: Final = Host(kind="cpu", count=None, memory_bytes=96 * 2**30)
DEPLOY: Final = 'base_config: qwen2_5_omni\nstages:\n  - stage_id: 0\n    devices: "0"\n'
STRATEGY: Final = "strategies:\n  thinker:\n    - {axis: tp, size: 2}\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tp2.yaml").write_text(STRATEGY, encoding="utf-8")
    (tmp_path / "one.yaml").write_text(DEPLOY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stagemesh.cli._plan, "read_host", lambda: HOST)


def test_a_mistake_is_shown_at_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, with the remedy."""
    code = main(["plan", FIXTURE, "--strategy-config", "tp2.yaml", "--deploy-config", "one.yaml"])
    shown = capsys.readouterr()
    assert (code, shown.out) == (1, "")
    assert (
        shown.err
        == """\
error[PL010]: `thinker` lists `1` device and needs `2`: `2` ranks
  --> one.yaml:4:14   stages[0].devices
   4 |     devices: "0"
     |              ^
note: `tp` = `2` is set here (tp2.yaml:3:24)
help: list as many, in a deploy file or with `--stage-overrides`, or change its axes; \
this would fit: `--set thinker.devices=2,3`

1 error. `stagemesh explain PL010` tells more.
"""
    )


def test_a_mistake_is_data_under_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The same finding on standard output."""
    given = ["--strategy-config", "tp2.yaml", "--deploy-config", "one.yaml"]
    assert main(["plan", FIXTURE, *given, "--json"]) == 1
    shown = capsys.readouterr()
    assert shown.err == ""
    assert [found["code"] for found in json.loads(shown.out)["diagnostics"]] == ["PL010"]


def test_a_secret_never_reaches_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """Not in the message, nor in the lines that show other mistakes."""
    text = "stages:\n  - {stage_id: 0, env: {HF_TOKEN: hunter2}, nonsense: 1}\n"
    Path("deploy.yaml").write_text(text, encoding="utf-8")
    assert main(["plan", FIXTURE, "--deploy-config", "deploy.yaml"]) == 1
    shown = capsys.readouterr()
    assert shown.err.count("  - {stage_id: 0, env: {HF_TOKEN: ***\n") == 2
    assert "hunter2" not in shown.out + shown.err


def test_json_and_the_saved_file_are_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """Byte for byte the same, and readable again."""
    assert main(["plan", FIXTURE, "--json", "-o", "plan.json"]) == 0
    shown = capsys.readouterr()
    assert shown.out == Path("plan.json").read_text(encoding="utf-8")
    assert isinstance(from_json(shown.out), Plan)


@pytest.mark.parametrize("path", ["missing/plan.json", ".", "-", "/dev/full"])
def test_a_file_that_cannot_be_written_is_told(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One diagnostic that names the file."""
    assert main(["plan", FIXTURE, "-o", path]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"error[CL001]: `{path}` cannot be written: ")
    assert "--> --output" in shown.err


@pytest.mark.parametrize("devices", ["--devices", "--fit"])
def test_what_was_read_is_not_written_over(
    devices: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a file of the layout, nor anything in the checkpoint."""
    given = ["--deploy-config", "deploy.yaml", devices, "8xH200"]
    Path("deploy.yaml").write_text("async_chunk: false\n", encoding="utf-8")
    for target in (given[1], f"{FIXTURE}/config.json"):
        assert main(["plan", FIXTURE, *given, "-o", target]) == 1
        assert f"error[CL017]: `{target}` " in capsys.readouterr().err
    assert Path("deploy.yaml").read_text(encoding="utf-8") == "async_chunk: false\n"


@pytest.mark.parametrize("text", ["{}", "base_config: qwen2_5_omni", ""])
def test_a_file_that_takes_the_place_of_the_models_own_says_so(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless it lies on one that ships."""
    Path("deploy.yaml").write_text(text, encoding="utf-8")
    given = ["--deploy-config", "deploy.yaml"] if text else []
    assert main(["plan", FIXTURE, *given, "--devices", "8xH200"]) == 0
    told = "left out: all values of the model's own deploy file; `base_config: qwen2_5_omni`"
    assert (told in capsys.readouterr().out) is (text == "{}")


def test_a_runnable_plan_says_how_to_run_it() -> None:
    """Saved or not."""
    plan = planned(request(solo()))
    assert plan.not_runnable == ()
    assert "`-o plan.json` saves it" in stagemesh.cli._plan._next(plan, None, None)
    assert "`stagemesh run p.json" in stagemesh.cli._plan._next(plan, "p.json", None)
    assert "`stagemesh run 'a p.json' " in stagemesh.cli._plan._next(plan, "a p.json", None)


def test_every_form_can_be_typed() -> None:
    """The command knows them without loading them."""
    assert set(FORMS) == set(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_a_plan_is_written_in_other_words(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """To standard output and nothing beside it, or into a file."""
    made = make(PlanInputs(model=FIXTURE), HOST)
    assert made.plan is not None
    text = FORMATS[name].write(made.plan, Catalog.installed())
    assert main(["plan", FIXTURE, "--as", name]) == 0
    assert capsys.readouterr() == (text, "")
    assert main(["plan", FIXTURE, "--as", name, "-o", "file"]) == 0
    assert Path("file").read_text(encoding="utf-8") == text
    assert f"\nwrote `file` as {name}; next: " in capsys.readouterr().out


@pytest.mark.parametrize("flags", [["--json", "--as", "yaml"], ["--as", "nonsense"], ["--as"]])
def test_a_plan_is_written_in_one_form(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """One that there is; both are listed."""
    assert main(["plan", FIXTURE, *flags]) == 2
    assert "--as" in capsys.readouterr().err


def typed(*arguments: str) -> PlanInputs:
    """Parse what a user types behind a planning command."""
    parser = argparse.ArgumentParser()
    add_plan_arguments(parser)
    return inputs_from(parser.parse_args(["m", *arguments]))


def test_what_is_not_typed_is_not_given() -> None:
    """So that a typed default still counts."""
    assert typed() == PlanInputs(model="m")


def test_everything_that_is_typed_is_given() -> None:
    """Each flag is one input."""
    given = typed("--strategy-config=s", "--deploy-config=d", "--stage-overrides={}", "--devices=2")
    assert given == PlanInputs(
        model="m", strategy_config="s", deploy_config="d", stage_overrides="{}", devices="2"
    )
    for flag, value in (("--async-chunk", True), ("--no-async-chunk", False)):
        switch = GivenField(name="async_chunk", value=value, source=flag, is_typed=True)
        assert typed(flag).fields == (switch,)
