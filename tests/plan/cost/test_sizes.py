"""What a denoising stage holds, by the number and the size of results that it is asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from stagemesh.config.catalog import Catalog
from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.engines.diffusion import ENGINE
from stagemesh.plan.make import Made, make
from stagemesh.plan.save import to_json
from stagemesh.plan.saved import open_saved
from stagemesh.plan.values import MemoryPlan, Plan, StagePlan
from stagemesh.spec.cost import Part, Pieces
from stagemesh.spec.engine import MemoryInput, Scaled
from stagemesh.spec.facts import Canvas, StageFacts
from stagemesh.spec.pipeline import NoOptions
from tests.config.flagged import text_of
from tests.plan.cost.known import FLUX, WAN
from tests.plan.fit.test_messages import FIXTURES

HOST: Final = Host(kind="cpu", count=2, memory_bytes=2**40)
PROCESS: Final = 256 * 2**20
PICTURE: Final = replace(FLUX, canvas=Canvas(size=(1, 1024, 1024), cell=(1, 8, 8), patch=(1, 2, 2)))
CLIP: Final = replace(WAN, canvas=Canvas(size=(81, 720, 1280), cell=(4, 8, 8), patch=(1, 2, 2)))
DARK: Final = StageFacts(num_parameters=10**9)
VAE: Final = StageFacts(
    component_bytes={"vae": 1000},
    weight_bytes=1000,
    output_pixels=1024 * 1024,
    output_frames=1,
    canvas=PICTURE.canvas,
)


def asked(
    facts: StageFacts,
    params: Mapping[str, object],
    pieces: Pieces | None = None,
    **fields: object,
) -> tuple[MemoryInput, Scaled]:
    """What the engine is given, at the size it is asked for, and what it made of the facts."""
    given = MemoryInput(
        facts=facts,
        sizes={},
        args=NoOptions(),
        device_kind="cuda",
        pieces=pieces or {},
        stage_args=fields,
        params=params,
    )
    scaled = ENGINE.scale(given)
    return replace(given, facts=scaled.facts), scaled


@pytest.mark.parametrize(
    ("facts", "params", "fields", "tokens", "pixels", "frames"),
    [
        (PICTURE, {}, {}, 4096 + 512, 1024**2, None),
        (PICTURE, {"height": 1024, "width": 1024}, {}, 4096 + 512, 1024**2, None),
        (PICTURE, {"height": 2048}, {}, 8192 + 512, 2 * 1024**2, None),
        (PICTURE, {"height": 2048, "width": None}, {}, 8192 + 512, 2 * 1024**2, None),
        (PICTURE, {}, {"max_num_seqs": 3}, 3 * 4608, 3 * 1024**2, None),
        (
            PICTURE,
            {"num_outputs_per_prompt": 2},
            {"max_num_seqs": 3},
            6 * 4608,
            6 * 1024**2,
            None,
        ),
        (PICTURE, {"height": 1, "width": 1}, {}, 1 + 512, 1, None),
        (CLIP, {}, {}, 75600, 81 * 720 * 1280, 81),
        (CLIP, {"num_frames": 1}, {}, 3600, 720 * 1280, 1),
        (
            CLIP,
            {"num_frames": 121, "height": 2160, "width": 3840},
            {},
            31 * 135 * 240,
            121 * 2160 * 3840,
            121,
        ),
        (FLUX, {"height": 2048}, {"max_num_seqs": 2}, 2 * 4608, 2 * 1024**2, None),
        (VAE, {"height": 2048}, {"max_num_seqs": 2}, None, 4 * 1024**2, 1),
        (DARK, {"height": 2048}, {"max_num_seqs": 2}, None, None, None),
        (
            replace(VAE, sequence_length=9, canvas=Canvas(size=(1, 64, 64), cell=(1, 8, 8))),
            {"height": 128},
            {},
            None,  # how cells make tokens is not known
            64 * 128,
            1,
        ),
    ],
)
def test_tokens_and_pixels_follow_from_what_is_asked_for(
    facts: StageFacts,
    params: Mapping[str, object],
    fields: dict[str, Any],
    tokens: int | None,
    pixels: int | None,
    frames: int | None,
) -> None:
    """The size of one result by the latent and its patches, times the results made together."""
    found = asked(facts, params, **fields)[1].facts
    assert (found.sequence_length, found.output_pixels) == (tokens, pixels)
    assert found.output_frames == frames


@pytest.mark.parametrize(
    ("facts", "params", "fields", "told"),
    [
        (PICTURE, {"height": 2048, "num_outputs_per_prompt": 2}, {"max_num_seqs": 2}, ()),
        (PICTURE, {"num_frames": 9}, {}, ("num_frames",)),
        (PICTURE, {"max_sequence_length": 77}, {}, ("max_sequence_length",)),
        (PICTURE, {"max_sequence_length": None, "height": None}, {}, ()),
        (CLIP, {"num_frames": 9, "max_sequence_length": 77}, {}, ()),
        (FLUX, {"height": 2048, "num_frames": 2}, {"max_num_seqs": 2}, ("num_frames", "height")),
        (VAE, {"height": 2048}, {"max_num_seqs": 2}, ()),
        (DARK, {"num_outputs_per_prompt": 1}, {"max_num_seqs": 1}, ()),
        (
            DARK,
            {"width": 5, "num_outputs_per_prompt": 2, "max_sequence_length": 7},
            {"max_num_seqs": 2},
            ("max_num_seqs", "num_outputs_per_prompt", "width", "max_sequence_length"),
        ),
        (DARK, {}, {"max_num_seqs": 2}, ("max_num_seqs",)),
    ],
)
def test_what_the_facts_do_not_tell_is_told(
    facts: StageFacts,
    params: Mapping[str, object],
    fields: dict[str, Any],
    told: tuple[str, ...],
) -> None:
    """Each value whose effect is not in the estimate."""
    assert asked(facts, params, **fields)[1].uncounted == told


def test_a_batch_is_computed_together_and_attends_each_to_itself() -> None:
    """As many operations for each of them, and the weights read once."""
    assert ENGINE.forward is not None
    one, two = (ENGINE.forward(asked(PICTURE, {}, max_num_seqs=count)[0]) for count in (1, 2))
    assert one is not None
    assert two is not None
    assert one.work is not None
    assert two.work is not None
    assert (one.batch, two.batch) == (1, 2)
    assert two.work.flops == 2 * one.work.flops
    assert two.work.read_bytes == one.work.read_bytes
    outputs = ENGINE.forward(asked(PICTURE, {"num_outputs_per_prompt": 2})[0])
    assert outputs is not None
    assert (outputs.batch, outputs.work) == (1, two.work)


@pytest.mark.parametrize(
    ("pieces", "fields", "expected"),
    [
        ({}, {}, 4 * 1024**2 * 2048),
        ({}, {"vae_use_slicing": True}, 1024**2 * 2048 + 4 * 3 * 1024**2 * 2),
        ({}, {"vae_use_tiling": True}, 4 * 512**2 * 2048 + 4 * 3 * 1024**2 * 2),
        (
            {},
            {"vae_use_tiling": True, "vae_use_slicing": True},
            512**2 * 2048 + 4 * 3 * 1024**2 * 2,
        ),
        ({Part.BANDS: 4}, {}, int(4 * 1024**2 * 2048 / 4 * 1.1)),
    ],
)
def test_pictures_are_decoded_together_or_one_by_one(
    pieces: Pieces, fields: dict[str, Any], expected: int
) -> None:
    """What is done already is kept beside the one that is decoded."""
    given, _ = asked(VAE, {}, pieces, max_num_seqs=4, **fields)
    found = ENGINE.memory(given)
    assert found is not None
    assert found.workspace - PROCESS == expected


# --- whole plans ---------------------------------------------------------------------------------


def said(params: Mapping[str, object]) -> tuple[str, ...]:
    """Say default request parameters, by stage."""
    return tuple(
        f"{stage}.default_sampling_params={json.dumps(each)}" for stage, each in params.items()
    )


def planned(model: str, params: Mapping[str, object], *values: str) -> Made:
    """Plan a checkpoint with default request parameters."""
    inputs = PlanInputs(
        model=str(FIXTURES / "diffusers" / model),
        devices="8xH200",
        set_values=(*values, *said(params)),
    )
    return make(inputs, HOST)


def plan_of(made: Made) -> Plan:
    """The plan, which must be there."""
    assert made.plan is not None, text_of(made)
    return made.plan


def memory(stage: StagePlan) -> MemoryPlan:
    """Its memory, which must be known."""
    assert stage.memory is not None
    return stage.memory


@pytest.mark.parametrize(
    ("model", "params", "values", "factor"),
    [
        ("flux", {"height": 2048, "width": 2048}, (), 4),
        ("flux", {"num_outputs_per_prompt": 2}, ("dit.max_num_seqs=2",), 4),
        ("wan2_2", {"height": 960, "width": 1664}, (), 4),
    ],
)
def test_a_plan_counts_what_its_stage_is_asked_for(
    model: str, params: Mapping[str, object], values: tuple[str, ...], factor: int
) -> None:
    """Decoding is the larger part of these, and linear in its pixels."""
    before = memory(plan_of(planned(model, {})).stages[0]).workspace - PROCESS
    plan = plan_of(planned(model, {"dit": params}, *values))
    assert memory(plan.stages[0]).workspace - PROCESS == factor * before
    assert not [each for each in plan.skipped_checks if "is not estimated" in each]


@pytest.mark.parametrize(
    ("params", "values", "path"),
    [
        (
            {"dit": {"height": 32768, "seed": 1, "width": 32768}},
            (),
            "dit.default_sampling_params.height",
        ),
        ({}, ("dit.max_num_seqs=128",), "dit.max_num_seqs"),
        (
            {"dit": {"num_outputs_per_prompt": 128}},
            ("dit.max_num_seqs=1",),
            "dit.default_sampling_params.num_outputs_per_prompt",
        ),
    ],
)
def test_what_is_too_large_is_refused(
    params: Mapping[str, object], values: tuple[str, ...], path: str
) -> None:
    """A size that no device decodes is an error of the plan, told where it was asked for."""
    [found] = planned("flux", params, *values).diagnostics
    assert (found.code, found.origin and found.origin.path) == ("PL015", path)


def test_buffers_and_traffic_of_axes_grow_as_well() -> None:
    """They are those of all tokens that are computed together."""
    one, four = (
        plan_of(planned("flux", {}, "dit.ulysses_degree=4", f"dit.max_num_seqs={count}"))
        for count in (1, 4)
    )
    before, after = (plan.stages[0].axes[-1].traffic for plan in (one, four))
    assert before is not None
    assert after is not None
    assert (after.sent_bytes, after.tokens) == (4 * before.sent_bytes, 4 * before.tokens)


def test_a_stage_is_told_of_sizes_that_only_the_one_before_it_has(tmp_path: Path) -> None:
    """The decoder gets what the denoiser made; its own parameters say how large that is."""
    deploy = tmp_path / "split.yaml"
    deploy.write_text("pipeline: flux_split\n", encoding="utf-8")
    inputs = PlanInputs(
        model=str(FIXTURES / "diffusers/flux"), devices="4xH200", deploy_config=deploy
    )
    told = "memory of `vae`: the effect of `height` of `denoiser` is not estimated"
    params: dict[str, dict[str, int]] = {"denoiser": {"height": 2048}}
    plan = plan_of(make(replace(inputs, set_values=said(params)), HOST))
    assert [each for each in plan.skipped_checks if "is not estimated" in each] == [told]
    params["vae"] = {"height": 2048}
    both = plan_of(make(replace(inputs, set_values=said(params)), HOST))
    assert told not in both.skipped_checks
    assert memory(both.stages[2]).workspace > memory(plan.stages[2]).workspace
    saved = tmp_path / "plan.json"
    saved.write_text(to_json(both), encoding="utf-8")
    assert open_saved(saved, HOST, Catalog.installed()).plan == both
