"""Request parameters of denoising stages are known, typed, and told at their places."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final

import pytest

from stagemesh.engines.diffusion import ENGINE
from stagemesh.plan.save import to_json
from stagemesh.plan.saved import open_saved
from tests.config.flagged import CATALOG, HOST, codes_of, made_from, planned, text_of

KEY: Final = "default_sampling_params"
VALUES: Final[Mapping[str, tuple[object, object]]] = {
    "negative_prompt": ("fog", 3),
    "num_inference_steps": (4, 0),
    "guidance_scale": (0, -1),
    "guidance_scale_2": (3.5, "strong"),
    "true_cfg_scale": (4.0, -0.5),
    "guidance_rescale": (0.7, 1.5),
    "cfg_normalize": (True, "yes"),
    "height": (1024, 0),
    "width": (1024, 1024.0),
    "num_frames": (81, 0),
    "fps": (23.976, 0),
    "num_outputs_per_prompt": (2, 0),
    "seed": (0, -1),
    "sigmas": ([1.0, 0.5], [1.0, -0.5]),
    "eta": (0.0, 2),
    "boundary_ratio": (0.875, -0.1),
    "max_sequence_length": (512, True),
    "extra_args": ({"shift": 3.0, "deep": {"a": [1]}}, ["shift"]),
}
"""Of every parameter, a value that it takes and one that it does not."""


def entry(**params: object) -> dict[str, object]:
    """A deploy file that gives the stage these parameters."""
    return {"stages": [{"stage_id": 0, KEY: params}]}


def test_the_table_has_every_parameter() -> None:
    """So that a new one is thought of."""
    assert set(VALUES) == {item.name for item in fields(ENGINE.params)}


@pytest.mark.parametrize("name", VALUES)
def test_a_parameter_is_typed_where_it_was_written(name: str, tmp_path: Path) -> None:
    """What it takes is in the plan and stays when that is saved; anything else has a place."""
    right, wrong = VALUES[name]
    plan = planned(made_from(tmp_path, "", model="picture", deploy=entry(**{name: right})))
    assert json.loads(to_json(plan))["stages"][0]["sampling"] == {name: right}
    file = tmp_path / "plan.json"
    file.write_text(to_json(plan), encoding="utf-8")
    assert open_saved(file, HOST, CATALOG).plan == plan
    deploy = tmp_path / "deploy.json"
    deploy.write_text(json.dumps(entry(**{name: wrong})), encoding="utf-8")
    made = made_from(tmp_path, "", model="picture", deploy=deploy)
    [found] = made.diagnostics
    assert found.code in ("CF012", "CF013"), text_of(made)
    assert f"`{name}" in found.message
    assert str(found.origin).startswith(f"{deploy}:1:")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("num_inference_step", "num_inference_steps"),
        ("guidence_scale", "guidance_scale"),
        ("negativ_prompt", "negative_prompt"),
        ("true_cfg", "true_cfg_scale"),
        ("extra_arg", "extra_args"),
    ],
)
def test_an_unknown_parameter_has_a_near_one(name: str, near: str, tmp_path: Path) -> None:
    """P79: it is no parameter of the model that nobody reads."""
    made = made_from(tmp_path, "", model="picture", deploy=entry(**{name: 1}))
    [found] = made.diagnostics
    assert (found.code, found.help) == ("PL024", f"did you mean `{near}`?")
    assert found.message == f"stage `dit` knows no parameter `{name}`"


def test_stages_of_each_kind_know_their_own(tmp_path: Path) -> None:
    """Tokens are none of a denoising loop's affair, nor steps of a language model's."""
    given = {"front": {"num_inference_steps": 4}, "dit": {"max_tokens": 4}}
    line = f"--default-sampling-params {shlex.quote(json.dumps(given))}"
    assert codes_of(made_from(tmp_path, line, model="ar_dit")) == ["PL024", "PL024"]
    given = {"front": {"max_tokens": 4, "seed": 1}, "dit": {"num_inference_steps": 4, "seed": 2}}
    line = f"--default-sampling-params {shlex.quote(json.dumps(given))}"
    front, dit = planned(made_from(tmp_path, line, model="ar_dit")).stages
    assert (front.sampling["seed"], dit.sampling["seed"]) == (1, 2)
