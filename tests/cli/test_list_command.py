"""`stagemesh list`: what is installed, for people and for programs."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import cast

import pytest

from stagemesh.cli._listing import _models
from stagemesh.cli._main import main
from stagemesh.cli.list import KINDS
from stagemesh.spec.axis import Axis
from stagemesh.spec.pipeline import ExecutionType
from stagemesh.spec.registry import AXES, CONNECTORS, ENGINES, MODELS

NAMES = {
    "models": {pipeline.model_type for pipeline in MODELS.declarations()},
    "axes": {axis.name for axis in AXES.declarations()},
    "connectors": {connector.name for connector in CONNECTORS.declarations()},
    "engines": {engine.name for engine in ENGINES.declarations()},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_plug_in_has_a_line(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Below a heading, before the next useful command."""
    assert main(["list", kind]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert shown.err == ""
    assert lines[0].startswith("name ")
    assert {line.split()[0] for line in lines[1 : lines.index("")]} == NAMES[kind]
    assert lines[-1] == f"next: `stagemesh list {kind} --json` tells more"


@pytest.mark.parametrize("kind", KINDS)
def test_json_lists_the_same_names(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Under one key, named like the kind."""
    assert main(["list", kind, "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)[kind]
    assert {entry["name"] for entry in entries} == NAMES[kind]


def test_a_model_that_only_plans_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    """In JSON with the reason."""
    main(["list", "models", "--json"])
    models = {each["name"]: each for each in json.loads(capsys.readouterr().out)["models"]}
    assert models["qwen2_5_omni"]["runs"] == "planning only"
    assert "not connected" in models["qwen2_5_omni"]["planning_only"]
    assert models["voice_chat"]["runs"] == "yes"
    assert models["voice_chat"]["planning_only"] is None


def test_a_model_says_what_it_takes_and_gives_and_of_what_it_is_a_cut(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On the screen, which stays narrow, as well as in JSON."""
    main(["list", "models", "--json"])
    models = {each["name"]: each for each in json.loads(capsys.readouterr().out)["models"]}
    whole, cut = models["qwen3_omni_moe"], models["qwen3_omni_moe_thinker_only"]
    assert whole["takes"] == cut["takes"] == ["text", "image", "audio", "video"]
    assert (whole["gives"], cut["gives"]) == (["text", "audio"], ["text"])
    assert (whole["variant_of"], cut["variant_of"]) == (None, "qwen3_omni_moe")
    duplex = ("minicpmo_4_5", "personaplex", "qwen3_tts")
    assert [models[name]["duplex"] for name in duplex] == ["default", "yes", None]
    main(["list", "models"])
    lines = capsys.readouterr().out.splitlines()
    [line] = [each for each in lines if each.startswith("qwen3_omni_moe_thinker_only ")]
    assert line.split() == [
        *("qwen3_omni_moe_thinker_only", "text", "image", "audio", "video", "text", "-"),
        *("planning", "only", "qwen3_omni_moe"),
    ]
    assert max(map(len, lines)) <= 105


def test_an_axis_says_which_engines_execute_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The support matrix comes from the declarations."""
    main(["list", "axes", "--json"])
    for axis in json.loads(capsys.readouterr().out)["axes"]:
        executing = [each.name for each in ENGINES.declarations() if axis["name"] in each.executes]
        assert axis["executed_by"] == executing


def test_the_axes_of_every_stage_run_or_are_planned() -> None:
    """None is missing, and none is both."""
    for model in _models():
        for support in cast("list[dict[str, list[str]]]", model["support"]):
            kind = support["execution_type"]
            fitting = [axis.name for axis in AXES.declarations() if _fits(axis, str(kind))]
            assert sorted([*support["runs"], *support["plans"]]) == fitting


def _fits(axis: Axis, kind: str) -> bool:
    return ExecutionType(kind) in axis.fits


def test_models_without_plans_have_no_matrix_of_networks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty table is not shown."""
    plain = tuple(each for each in MODELS.declarations() if each.plans is None)
    listed = SimpleNamespace(declarations=lambda: plain)
    monkeypatch.setattr("stagemesh.cli._listing.MODELS", listed)
    assert main(["list", "models"]) == 0
    assert "network" not in capsys.readouterr().out


KEYS = {
    "models": {
        "name",
        "variant_of",
        "takes",
        "gives",
        "duplex",
        "stages",
        "runs",
        "summary",
        "architectures",
        "planning_only",
        "execution_types",
        "support",
    },
    "axes": {
        "name",
        "fits",
        "role",
        "summary",
        "routing",
        "aggregation",
        "owner",
        "policies",
        "deploy_fields",
        "options",
        "excludes",
        "executed_by",
    },
    "connectors": {"name", "config_names", "reach", "summary", "options"},
    "engines": {"name", "runs", "default_for", "executes", "summary", "options", "params"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_programs_read_stays(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys may be added, and none is taken away."""
    main(["list", kind, "--json"])
    for entry in json.loads(capsys.readouterr().out)[kind]:
        assert set(entry) >= KEYS[kind]
