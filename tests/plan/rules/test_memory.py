"""What no estimate of memory counts is told, each value once."""

from __future__ import annotations

import pytest

from stagemesh.config.inputs import PlanInputs
from stagemesh.engines.generation import ENGINE as GENERATION
from stagemesh.engines.generation import GenerationOptions
from stagemesh.plan.make import Made, make
from stagemesh.spec.engine import MemoryInput
from stagemesh.spec.facts import StageFacts
from tests.config.flagged import text_of
from tests.plan.fit.test_messages import FIXTURES, HOST


def _made(model: str, *values: str) -> Made:
    inputs = PlanInputs(model=str(FIXTURES / model), devices="8xH200", set_values=values)
    return make(inputs, HOST)


@pytest.mark.parametrize(
    ("model", "values", "told"),
    [
        (
            "diffusers/wan2_2",
            ("dit.quantization=fp8", "dit.enable_layerwise_offload=true"),
            ["dit: quantization", "dit: enable_layerwise_offload"],
        ),
        (
            "qwen2_5_omni",
            (
                "thinker.kv_cache_dtype=fp8",
                "thinker.hf_overrides={num_layers: 2}",
                "talker.quantization=awq",
            ),
            ["thinker: hf_overrides", "thinker: kv_cache_dtype", "talker: quantization"],
        ),
        (  # nothing is changed by these
            "qwen2_5_omni",
            ("thinker.kv_cache_dtype=auto", "thinker.hf_overrides={}"),
            [],
        ),
        ("diffusers/wan2_2", ("dit.enable_layerwise_offload=false",), []),
        ("diffusers/wan2_2", ("dit.dtype=float16",), []),
    ],
)
def test_a_value_whose_effect_on_memory_is_unknown_is_told(
    model: str, values: tuple[str, ...], told: list[str]
) -> None:
    """One line for each, in the list of what was not checked."""
    made = _made(model, *values)
    assert made.plan is not None, text_of(made)
    lines = [each for each in made.plan.skipped_checks if "is not estimated" in each]
    assert lines == [
        f"memory of `{stage}`: the effect of `{field}` is not estimated"
        for stage, field in (each.split(": ") for each in told)
    ]


def test_sizes_that_overrides_change_are_not_checked() -> None:
    """They replace what the axes were held against."""
    made = _made("qwen2_5_omni", "thinker.hf_overrides={num_hidden_layers: 2}")
    assert made.plan is not None, text_of(made)
    told = "sizes of `thinker`: axes are held against the checkpoint without `hf_overrides`"
    assert told in made.plan.skipped_checks


def test_the_given_type_decides_what_a_network_takes_that_runs_once() -> None:
    """By the number of its weights, or by its files."""
    for facts in (StageFacts(num_parameters=10**9), StageFacts(weight_bytes=2 * 10**9)):
        for dtype, size in (("float32", 4), ("float16", 2), ("auto", 2), (None, 2)):
            given = MemoryInput(
                facts=facts,
                sizes={},
                args=GENERATION.options(),
                device_kind="cuda",
                stage_args={"dtype": dtype},
            )
            found = GENERATION.memory(given)
            assert found is not None
            assert found.weights == size * 10**9


@pytest.mark.parametrize(("model", "stage"), [("diffusers/flux", "dit")])
def test_the_given_type_decides_what_weights_take(model: str, stage: str) -> None:
    """A wide one takes twice as much as a narrow one; `auto` is that of the files."""
    found = {}
    for dtype in ("float32", "float16", "bfloat16", "auto"):
        made = _made(model, f"{stage}.dtype={dtype}")
        assert made.plan is not None, text_of(made)
        (memory,) = (each.memory for each in made.plan.stages if each.name == stage)
        assert memory is not None
        found[dtype] = memory.weights
    assert found["float32"] == pytest.approx(2 * found["float16"], rel=1e-6)
    assert found["float16"] == found["bfloat16"]
    plain = _made(model).plan
    assert plain is not None
    (memory,) = (each.memory for each in plain.stages if each.name == stage)
    assert memory is not None
    assert found["auto"] == memory.weights


@pytest.mark.parametrize(
    ("model", "stage"), [("diffusers/wan2_2", "dit"), ("qwen2_5_omni", "code2wav")]
)
def test_a_wrong_type_is_refused_on_every_kind_of_stage(model: str, stage: str) -> None:
    """With the same words as for a language model."""
    made = _made(model, f"{stage}.dtype=abc")
    (found,) = made.diagnostics
    assert (found.code, found.message) == ("CF013", f"`{stage}.dtype` does not take `abc`")
    assert found.help == "allowed here: `auto`, `bfloat16`, `float16`, `float32`"


@pytest.mark.parametrize(
    ("model", "value", "told"),
    [
        ("diffusers/wan2_2", "dit.gpu_memory_utilization=0.5", "PL027"),
        ("qwen2_5_omni", "thinker.vae_patch_parallel_size=2", "AX020"),
    ],
)
def test_what_a_stage_cannot_have_is_told_once(model: str, value: str, told: str) -> None:
    """What would follow from it is no further mistake."""
    assert [each.code for each in _made(model, value).diagnostics] == [told]


def test_activations_of_one_shot_networks_grow_with_the_requests_of_a_step() -> None:
    """Each request that a step runs together with others holds activations of its own."""
    workspace = {}
    for together in (1, 2, 8):
        found = GENERATION.memory(
            MemoryInput(
                facts=StageFacts(num_parameters=10**6, hidden_size=64, sequence_length=100),
                sizes={},
                args=GenerationOptions(max_num_seqs=together),
                device_kind="cuda",
                stage_args={"dtype": "float32"},
            )
        )
        assert found is not None
        workspace[together] = found.workspace
    one = 100 * 12 * 64 * 4
    assert workspace[2] - workspace[1] == one
    assert workspace[8] - workspace[1] == 7 * one
