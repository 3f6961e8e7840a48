"""Request parameters come from every layer, merged by key (T38, T66)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pytest

from stagemesh.runtime.params import RequestRules
from tests.config.flagged import codes_of, made_from, planned

KEY: Final = "default_sampling_params"


def entry(**params: object) -> dict[str, object]:
    """A deploy file that gives the stage these parameters."""
    return {"stages": [{"stage_id": 0, KEY: params}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What each layer says, the lowest first, and what comes of it."""

    name: str
    """What the case is about."""
    base: Mapping[str, object] = field(default_factory=dict)
    """The file below."""
    overlay: Mapping[str, object] = field(default_factory=dict)
    """The deploy file."""
    platform: Mapping[str, object] = field(default_factory=dict)
    """Its section for this platform."""
    flag: Mapping[str, object] = field(default_factory=dict)
    """`--default-sampling-params`."""
    sets: tuple[str, ...] = ()
    """`--set`, below the parameters of the stage."""
    request: Mapping[str, object] = field(default_factory=dict)
    """What a request says."""
    gives: Mapping[str, object]
    """What the engine is given for it."""


CASES: Final = (
    Case(
        name="request beats flag beats platform beats overlay beats base",
        base={"num_inference_steps": 1, "height": 1, "width": 1, "seed": 1, "fps": 1},
        overlay={"num_inference_steps": 2, "height": 2, "width": 2, "seed": 2},
        platform={"num_inference_steps": 3, "height": 3, "width": 3},
        flag={"num_inference_steps": 4, "height": 4},
        request={"num_inference_steps": 5},
        gives={"num_inference_steps": 5, "height": 4, "width": 3, "seed": 2, "fps": 1},
    ),
    Case(
        name="extra arguments are merged by key from every layer",
        base={"extra_args": {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}},
        overlay={"extra_args": {"b": 2, "c": 2, "d": 2, "e": 2}},
        platform={"extra_args": {"c": 3, "d": 3, "e": 3}},
        flag={"extra_args": {"d": 4, "e": 4}},
        request={"extra_args": {"e": 5}},
        gives={"extra_args": {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}},
    ),
    Case(
        name="at any depth",
        base={"extra_args": {"deep": {"x": {"a": 1, "b": 1}}}},
        flag={"extra_args": {"deep": {"x": {"b": 2, "c": 2}}}},
        request={"extra_args": {"deep": {"x": {"c": 3}, "y": 3}}},
        gives={"extra_args": {"deep": {"x": {"a": 1, "b": 2, "c": 3}, "y": 3}}},
    ),
    Case(
        name="lists and single values replace",
        base={"sigmas": [1.0, 0.5], "extra_args": {"ids": [1, 2], "mode": {"a": 1}}},
        flag={"sigmas": [0.9]},
        request={"extra_args": {"ids": [3], "mode": "plain"}},
        gives={"sigmas": (0.9,), "extra_args": {"ids": (3,), "mode": "plain"}},
    ),
    Case(
        name="null takes back what lower layers say, by key too",
        base={"seed": 7, "extra_args": {"a": 1, "b": 1}},
        overlay={"seed": None, "extra_args": {"a": None}},
        gives={"extra_args": {"b": 1}},
    ),
    Case(
        name="null of a flag does so too",
        base={"seed": 7, "height": 64, "extra_args": {"a": 1}},
        flag={"seed": None, "extra_args": None},
        gives={"height": 64},
    ),
    Case(
        name="null of a request is a value",
        base={"seed": 7},
        request={"seed": None},
        gives={"seed": None},
    ),
    Case(
        name="one field of one stage is merged with the flag, whose layer it shares",
        base={"extra_args": {"a": 1}},
        flag={"extra_args": {"b": 2}},
        sets=("extra_args.c=3", "guidance_scale=2.5"),
        gives={"extra_args": {"a": 1, "b": 2, "c": 3}, "guidance_scale": 2.5},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_parameters_are_merged_by_key(case: Case, tmp_path: Path) -> None:
    """S2: explicit request > `--default-sampling-params` > deploy file, `extra_args` by key."""
    (tmp_path / "base.json").write_text(json.dumps(entry(**case.base)), encoding="utf-8")
    deploy = tmp_path / "deploy.json"
    section = {"platforms": {"cpu": entry(**case.platform)}}
    overlay = {"base_config": "base.json", **entry(**case.overlay), **section}
    deploy.write_text(json.dumps(overlay), encoding="utf-8")
    words = [f"--default-sampling-params {shlex.quote(json.dumps({'0': case.flag}))}"]
    words += [f"--set dit.{KEY}.{each}" for each in case.sets]
    made = made_from(tmp_path, " ".join(words), model="picture", deploy=deploy)
    plan = replace(planned(made), pipeline="flux")
    assert RequestRules(plan).merge({"dit": case.request}) == {0: case.gives}


def test_one_path_with_two_values_in_one_layer_is_an_error(tmp_path: Path) -> None:
    """`--set` and the flag write the same layer."""
    line = (
        f'--default-sampling-params \'{{"extra_args": {{"a": 1}}}}\' --set dit.{KEY}.extra_args.a=2'
    )
    assert codes_of(made_from(tmp_path, line, model="picture")) == ["CF067"]
