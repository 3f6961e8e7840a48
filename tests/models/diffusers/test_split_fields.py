"""Stages of a split checkpoint take only what something in them can use."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.catalog import Catalog
from stagemesh.config.inputs import PlanInputs
from stagemesh.config.kind_fields import KIND_FIELDS
from stagemesh.plan.make import Made, make
from stagemesh.spec.pipeline import StagePipelineConfig
from tests.config.flagged import text_of
from tests.models.diffusers.published import BY_NAME, FIXTURES, HOST, attempt, copy_of, edit, told
from tests.plan.test_flags_of_all_stages import fields_of

SPLIT: Final = {stage.model_stage: stage for stage in BY_NAME["flux_split"].stages}
VALUES: Final[Mapping[str, Mapping[str, object]]] = {
    "vae": {
        "lora_path": "/a",
        "cache_config": {"a": 1},
        "flow_shift": 3,
        "boundary_ratio": 0.5,
        "step_execution": True,
        "moe_backend": "auto",
        "auxiliary_text_encoder": "/t",
    },
    "denoiser": {"vae_use_tiling": True, "vae_fast_path": "off", "auxiliary_text_encoder": "/t"},
    "text_encoder": {"kv_cache_dtype": "fp8", "custom_voice_dir": "/v"},
}
"""Values of fields of the kinds, by stage."""

ONE_DENOISER: Final = {
    "transformer_2": [None, None],
    "boundary_ratio": None,
    "expand_timesteps": True,
}
"""Of a model index, for a checkpoint with one denoiser of a family that has some with two."""


def usual(stage: StagePipelineConfig) -> frozenset[str]:
    """Fields of its kind, and parameters of its engine."""
    engines = Catalog.installed().engines.values()
    declared = [each for each, kinds in KIND_FIELDS.items() if stage.execution_type in kinds]
    declared += [each.params for each in engines if stage.execution_type in each.runs]
    return frozenset(item.name for each in declared for item in dataclasses.fields(each))


@pytest.mark.parametrize("stage", SPLIT.values(), ids=list(SPLIT))
def test_only_what_a_stage_would_take_else_is_lacking(stage: StagePipelineConfig) -> None:
    """A name that nothing has would never be told of, and its own parameters are its own."""
    assert stage.lacks.keys() <= usual(stage)
    assert not stage.lacks.keys() & {item.name for item in dataclasses.fields(stage.params)}


def test_whatever_denoiser_or_vae_lack_another_stage_has() -> None:
    """What nothing could act on would be no field of a checkpoint that was cut apart."""
    for name, field in itertools.product(("denoiser", "vae"), usual(SPLIT["vae"])):
        if field in SPLIT[name].lacks:
            others = [SPLIT[other] for other in ("denoiser", "vae") if other != name]
            own = {item.name for item in dataclasses.fields(SPLIT["text_encoder"].params)}
            at_encoder = field in own or field == "auxiliary_text_encoder"
            assert at_encoder or any(field not in other.lacks for other in others), field


@pytest.mark.parametrize("stage", VALUES)
def test_a_field_that_nothing_in_a_stage_uses_is_refused_with_the_reason(stage: str) -> None:
    """Once, however much else it would need."""
    entry = {"stage_id": SPLIT[stage].stage_id, **VALUES[stage]}
    made = attempt(FIXTURES / "flux", {}, {"pipeline": "flux_split", "stages": [entry]})
    assert told(made) == [
        f"PL027: nothing in the stage `{stage}` uses `{name}`" for name in VALUES[stage]
    ]
    assert [found.help for found in made.diagnostics] == [
        SPLIT[stage].lacks[name] for name in VALUES[stage]
    ]


@pytest.mark.parametrize(
    ("stage", "params", "wrong"),
    [
        ("vae", {"height": 512, "num_inference_steps": 3, "guidance_scale": 4}, 2),
        ("denoiser", {"num_inference_steps": 3, "negative_prompt": "blur"}, 1),
        ("text_encoder", {"negative_prompt": "blur", "max_sequence_length": 64}, 0),
    ],
)
def test_a_request_parameter_belongs_to_the_stage_that_acts_on_it(
    stage: str, params: Mapping[str, object], wrong: int
) -> None:
    """The help says which one that is."""
    entry = {"stage_id": SPLIT[stage].stage_id, "default_sampling_params": params}
    made = attempt(FIXTURES / "flux", {}, {"pipeline": "flux_split", "stages": [entry]})
    lacking = [name for name in params if name in SPLIT[stage].lacks]
    assert told(made) == [f"PL024: stage `{stage}` knows no parameter `{name}`" for name in lacking]
    assert len(lacking) == wrong
    assert all("the stage `" in str(found.help) for found in made.diagnostics)


def typed(line: str, deploy: Mapping[str, object] | None = None) -> Made:
    """Plan with flags for all stages."""
    inputs = PlanInputs(
        model=str(FIXTURES / "flux"),
        deploy_config={"pipeline": "flux_split", **(deploy or {})},
        devices="8xH200",
        fields=fields_of(line),
    )
    return make(inputs, HOST)


def test_a_flag_for_all_stages_reaches_those_that_can_use_it() -> None:
    """Not the others, which would refuse it in an entry of their own."""
    made = typed("--flow-shift 3 --vae-use-tiling --cache-backend tea_cache")
    assert made.plan is not None, text_of(made)
    assert {stage.name: sorted(stage.values) for stage in made.plan.stages} == {
        "text_encoder": [],
        "denoiser": ["cache_backend", "flow_shift"],
        "vae": ["vae_use_tiling"],
    }


def test_a_flag_that_the_one_stage_here_cannot_use_says_why() -> None:
    """Another stage would, which is not started here."""
    made = typed("--flow-shift 3 --stage-id 2 --omni-master-address h --omni-master-port 1")
    assert [found.code for found in made.diagnostics] == ["CF060"], text_of(made)
    assert "not of `vae`: there is no denoising loop in it" in str(made.diagnostics[0].help)


def test_a_root_value_that_no_stage_can_use_says_why() -> None:
    """A text encoder is the only stage by tokens here."""
    made = typed("", {"enable_prefix_caching": True})
    assert [found.code for found in made.diagnostics] == ["CF031"], text_of(made)
    assert str(made.diagnostics[0].help) == (
        "it is a field of `llm_ar`, `llm_generation` stages; not of `text_encoder`:"
        " a text encoder reads a prompt in one pass, without a cache; leave it out"
    )


@pytest.mark.parametrize("pipeline", ["wan2_2", "wan2_2_split"])
def test_what_is_about_a_second_denoiser_needs_one(pipeline: str, tmp_path: Path) -> None:
    """A checkpoint with one accepts neither the field nor the parameter, and says why."""
    stages = BY_NAME[pipeline].stages
    stage = next(each for each in stages if each.model_stage in ("dit", "denoiser"))
    entry = {
        "stage_id": stage.stage_id,
        "boundary_ratio": 0.5,
        "default_sampling_params": {"guidance_scale_2": 3, "num_inference_steps": 4},
    }
    deploy = {"pipeline": pipeline, "stages": [entry]}
    assert told(attempt(FIXTURES / "wan2_2", {}, deploy)) == []
    one = copy_of("wan2_2", tmp_path)
    edit(one / "model_index.json", lambda index: index.update(ONE_DENOISER))
    made = attempt(one, {}, deploy)
    assert told(made) == [
        f"PL027: nothing in the stage `{stage.model_stage}` uses `boundary_ratio`",
        f"PL024: stage `{stage.model_stage}` knows no parameter `guidance_scale_2`",
    ]
    reason = "the checkpoint has one denoiser, and this is about a second one that takes over"
    assert [each.help for each in made.diagnostics] == [f"{reason}; leave it out"] * 2
    paths = [each.origin.path for each in made.diagnostics if each.origin is not None]
    assert paths == [
        "stages[0].boundary_ratio",
        "stages[0].default_sampling_params.guidance_scale_2",
    ]
