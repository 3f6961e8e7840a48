"""A flag for all stages reaches those that can take it, also where stages exclude axes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import pytest

from stagemesh.cli._arguments import inputs_from
from stagemesh.config.inputs import GivenField
from stagemesh.plan.make import Made
from tests.config.flagged import text_of, typed
from tests.plan.fit.test_messages import planned


def fields_of(line: str) -> tuple[GivenField, ...]:
    """Read flags as the command does."""
    return inputs_from(typed(["model", *shlex.split(line)])).fields


def split(line: str, pipeline: str = "qwen_image_split") -> Made:
    """Plan a diffusers checkpoint as three stages from a command line."""
    return planned(
        "diffusers/qwen_image", {"pipeline": pipeline}, "16xH200", fields=fields_of(line)
    )


@pytest.mark.parametrize(
    ("line", "sizes"),
    [
        ("--usp 2", {"denoiser": {"sp_ulysses": 2}}),
        ("--ring 2", {"denoiser": {"sp_ring": 2}}),
        ("--allgather-degree 2", {"denoiser": {"sp_ring": 2}}),
        ("--cfg-parallel-size 2", {"denoiser": {"cfg": 2}}),
        ("--tensor-parallel-size 2", {"text_encoder": {"tp": 2}, "denoiser": {"tp": 2}}),
        ("--pipeline-parallel-size 2", {"denoiser": {"pp": 2}}),
        ("--data-parallel-size 2", {"text_encoder": {"dp": 2}, "denoiser": {"dp": 2}}),
        ("--use-hsdp --hsdp-shard-size 2", {"denoiser": {"hsdp": 2}}),
        ("--vae-patch-parallel-size 2", {"vae": {"vae_pp": 2}}),
        (
            "--num-replicas 2",
            {name: {"stage_replica": 2} for name in ("text_encoder", "denoiser", "vae")},
        ),
    ],
)
def test_a_size_for_all_stages_reaches_those_that_do_not_exclude_its_axis(
    line: str, sizes: Mapping[str, Mapping[str, int]]
) -> None:
    """The plan says to which it applied."""
    made = split(line)
    assert made.plan is not None, text_of(made)
    assert made.diagnostics == ()
    got = {
        stage.name: {axis.axis: axis.size for axis in stage.axes}
        for stage in made.plan.stages
        if stage.axes
    }
    assert got == sizes
    flag = line.split()[-2]
    for stage in made.plan.stages:
        assert any(each.origin == flag for each in stage.values.values()) is (stage.name in sizes)


def test_a_flag_that_only_excluding_stages_could_use_says_why_they_do_not() -> None:
    """Where the one stage that is started excludes the axis."""
    line = "--cfg-parallel-size 2 --stage-id 2 --omni-master-address h --omni-master-port 1"
    made = split(line)
    assert [found.code for found in made.diagnostics] == ["CF060"], text_of(made)
    assert "not of `vae`: guidance ends before the VAE" in str(made.diagnostics[0].help)


def test_a_flag_that_no_model_can_follow_is_taken_back_for_the_right_stage() -> None:
    """The one stage that the flag reaches takes no guidance."""
    fields = fields_of("--cfg-parallel-size 2")
    made = planned("diffusers/flux", {"pipeline": "flux_split"}, "8xH200", fields=fields)
    assert [found.code for found in made.diagnostics] == ["AX035"], text_of(made)
    help_text = str(made.diagnostics[0].help)
    assert "entry" not in help_text
    assert "--set denoiser.cfg_parallel_size=1" in help_text


def test_experts_for_all_stages_reach_those_that_have_some() -> None:
    """The last stage has no experts, and the flag passes it by."""
    line = "--enable-expert-parallel --tensor-parallel-size 2"
    deploy = {"stages": [{"stage_id": stage, "devices": "0,1"} for stage in (0, 1, 2)]}
    made = planned("qwen3_omni_moe", deploy, "8xH200", fields=fields_of(line))
    assert made.plan is not None, text_of(made)
    sizes = [{each.axis: each.size for each in stage.axes} for stage in made.plan.stages]
    assert sizes == [{"tp": 2, "ep": 2}, {"tp": 2, "ep": 2}, {"tp": 2}]


@pytest.mark.parametrize(
    ("model", "line"), [("qwen2_5_omni", "--enable-expert-parallel --data-parallel-size 2")]
)
def test_experts_that_no_stage_has_are_an_error_once(model: str, line: str) -> None:
    """With the other stages as notes."""
    made = planned(model, {"stages": []}, "8xH200", fields=fields_of(line))
    assert [found.code for found in made.diagnostics] == ["AX032"], text_of(made)
    assert [note.message.split(", and ")[1] for note in made.diagnostics[0].notes] == [
        "`talker` has none",
        "`code2wav` has none",
    ]
