"""What no plan says how to cut is refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stagemesh.cli._listed_plans import listed_plans
from stagemesh.models.diffusers.pipeline import PIPELINES
from stagemesh.spec.registry import AXES
from tests.models.diffusers.published import FIXTURES, UNKNOWN, attempt, copy_of, edit

ENCODER = "leave it out: `NewEncoder` has no plan"
UNET = "leave it out: `UNet2DConditionModel` has no plan"
TILES = "leave it out: `AutoencoderKLLTXVideo`: its plan leaves that whole"


def _two(axis: str, **more: object) -> dict[str, object]:
    return {"axis": axis, "size": 2, **more}


@pytest.mark.parametrize(
    ("name", "changes", "entries", "told", "help_text"),
    [
        (UNKNOWN, {}, [_two("tp")], "`tp` cuts the width", UNET),
        (UNKNOWN, {}, [_two("cfg")], "`cfg` cuts the branches", UNET),
        (UNKNOWN, {}, [_two("sp_ring")], "`sp_ring` cuts the tokens", UNET),
        (UNKNOWN, {}, [_two("hsdp", shard=2)], "`hsdp` cuts the shards", UNET),
        (
            "flux",
            {"text_encoder": ["transformers", "NewEncoder"]},
            [_two("tp", text_encoder=2)],
            "`tp` cuts the encoders",
            ENCODER,
        ),
        (
            "flux",
            {"vae": ["diffusers", "NewVae"]},
            [_two("sp_ring"), _two("vae_pp")],
            "`vae_pp` cuts the tiles",
            "leave it out: `NewVae` has no plan",
        ),
        (
            "ltx",
            {},
            [_two("sp_ring"), _two("vae_pp", mode="spatial_shard_height")],
            "`vae_pp` cuts the bands",
            TILES,
        ),
    ],
)
def test_an_axis_needs_a_plan(
    name: str,
    changes: dict[str, object],
    entries: list[dict[str, object]],
    told: str,
    help_text: str,
    tmp_path: Path,
) -> None:
    """The class at fault is named, at the place of the axis."""
    folder = copy_of(name, tmp_path)
    edit(folder / "model_index.json", lambda index: index.update(changes))
    made = attempt(folder, {"dit": entries})
    assert made.plan is None
    [found] = [each for each in made.diagnostics if each.is_error]
    assert (found.code, found.message, found.help) == (
        "MD060",
        f"{told} of `dit`, and no plan says how",
        help_text,
    )
    assert found.origin is not None
    assert found.origin.path.startswith("strategies.dit[")


def test_a_configuration_may_be_cut_less_than_its_class(tmp_path: Path) -> None:
    """Blocks that count the tokens of the first frame see all of them."""
    folder = copy_of("hunyuan_video", tmp_path)
    key = {"image_condition_type": "token_replace"}
    edit(folder / "transformer" / "config.json", lambda config: config.update(key))
    made = attempt(folder, {"dit": [_two("sp_ulysses")]})
    [found] = [each for each in made.diagnostics if each.is_error]
    assert found.help == (
        "leave it out: `HunyuanVideoTransformer3DModel`: with `image_condition_type` ="
        " `token_replace`, its blocks count the tokens of the first frame from the front"
    )
    assert attempt(folder, {"dit": [_two("tp")]}).plan is not None


@pytest.mark.parametrize(
    ("stage", "entry", "told"),
    [
        ("denoiser", _two("tp"), "`tp` cuts the width of `denoiser`, and no plan says how"),
        ("text_encoder", _two("tp"), None),
        ("vae", _two("vae_pp"), None),
    ],
)
def test_each_stage_of_a_split_checkpoint_answers_for_its_own_networks(
    stage: str, entry: dict[str, Any], told: str | None
) -> None:
    """Text encoders and VAEs of an unknown pipeline often have plans."""
    made = attempt(FIXTURES / UNKNOWN, {stage: [entry]}, {"pipeline": "diffusers_split"})
    errors = [each.message for each in made.diagnostics if each.is_error]
    assert errors == ([] if told is None else [told])


def test_an_axis_is_listed_where_its_part_is_cut() -> None:
    """Families against axes, from the plans alone."""
    plans = {str(plan["network"]): plan for plan in listed_plans(PIPELINES, AXES.declarations())}
    assert plans["FluxTransformer2DModel"] == {
        "network": "FluxTransformer2DModel",
        "library": "diffusers",
        "family": "flux",
        "parts": ["branches", "layers", "shards", "tokens", "width"],
        "axes": ["cfg", "hsdp", "pp", "sp_ring", "sp_ulysses", "tp"],
    }
    assert plans["T5EncoderModel"]["axes"] == ["hsdp", "pp", "tp"]
    assert plans["AutoencoderKLWan"]["axes"] == ["vae_pp"]
