"""Facts, forms and defaults of Qwen3-Omni."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stagemesh.models.qwen3_omni_moe.pipeline import QWEN3_OMNI_MOE, QWEN3_OMNI_MOE_THINKER_ONLY
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import JsonObject
from tests.models.shipping import args, config_of, facts, facts_of, made, planned, told

THINKER = StageFacts(
    num_attention_heads=32,
    num_kv_heads=4,
    num_layers=48,
    num_experts=128,
    num_experts_per_tok=8,
    moe_intermediate_size=768,
    hidden_size=2048,
    head_dim=128,
    vocab_size=152064,
    max_model_len=65536,
    num_parameters=(
        48 * 2048 * (2 * 128 * 36 + 128 * (3 * 768 + 1))
        + 2 * 152064 * 2048
        + 32 * 1280 * (4 * 1280 + 2 * 5120)
        + 27 * 1152 * (4 * 1152 + 3 * 4304)
    ),
    weight_dtype="bfloat16",
)


def test_the_public_numbers_are_read_from_their_nesting() -> None:
    """128 experts in thinker and talker; the talker has one beside them that every token visits."""
    assert facts_of(QWEN3_OMNI_MOE, "qwen3_omni_moe") == {
        "thinker": THINKER,
        "talker": StageFacts(
            num_attention_heads=16,
            num_kv_heads=2,
            num_layers=20,
            num_experts=128,
            num_experts_per_tok=6,
            moe_intermediate_size=384,
            hidden_size=1024,
            intermediate_size=768,
            head_dim=128,
            vocab_size=3072,
            max_model_len=65536,
            num_parameters=20 * 1024 * (2 * 128 * 18 + 3 * 768 + 128 * (3 * 384 + 1))
            + 2 * 3072 * 1024,
            weight_dtype="bfloat16",
        ),
        "code2wav": StageFacts(
            num_attention_heads=16,
            num_kv_heads=16,
            num_layers=8,
            num_experts=0,
            hidden_size=1024,
            intermediate_size=3072,
            head_dim=64,
            max_model_len=8000,
            weight_dtype="bfloat16",
        ),
    }


def test_the_thinker_alone_has_the_same_numbers() -> None:
    """Whether the others lie beside it or not."""
    for name in ("qwen3_omni_moe", "qwen3_omni_moe_thinker_only"):
        assert facts_of(QWEN3_OMNI_MOE_THINKER_ONLY, name) == {"thinker": THINKER}


def test_what_a_checkpoint_does_not_say_stays_unknown() -> None:
    """The number of experts too, where there must be some."""
    nothing = StageFacts(num_experts=0)
    unknown = {"thinker": StageFacts(), "talker": StageFacts(), "code2wav": nothing}
    assert facts(QWEN3_OMNI_MOE, {}) == unknown


def checkpoint(folder: Path, **changes: object) -> Path:
    """A checkpoint with other words at its root; those that are `...` are left out."""
    config: JsonObject = {**config_of("qwen3_omni_moe"), **changes}
    kept = {key: value for key, value in config.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(kept), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("speaks", "pipeline"),
    [
        (True, "qwen3_omni_moe"),
        (..., "qwen3_omni_moe"),
        (False, "qwen3_omni_moe_thinker_only"),
    ],
)
def test_the_checkpoint_says_whether_it_speaks(
    tmp_path: Path, speaks: object, pipeline: str
) -> None:
    """`enable_audio_output`, which is `true` where nothing is said."""
    assert planned(checkpoint(tmp_path, enable_audio_output=speaks)).pipeline == pipeline


def test_a_word_that_is_neither_is_told(tmp_path: Path) -> None:
    """No form answers to it, and all that was looked at is listed."""
    [found] = made(checkpoint(tmp_path, enable_audio_output="maybe")).diagnostics
    notes = "\n".join(note.message for note in found.notes)
    assert found.code == "MD008"
    for name in ("`qwen3_omni_moe`", "`qwen3_omni_moe_thinker_only`"):
        assert name in notes


def test_a_deploy_file_chooses_the_thinker_of_any_checkpoint() -> None:
    """By `pipeline:`, and by the file that ships for it."""
    for deploy in ("qwen3_omni_moe_thinker_only", {"pipeline": "qwen3_omni_moe_thinker_only"}):
        plan = planned("qwen3_omni_moe", deploy)
        assert [stage.name for stage in plan.stages] == ["thinker"]
        assert [stage.final_output_type for stage in plan.stages] == ["text"]


def test_the_documented_override_lies_on_the_defaults() -> None:
    """Each value where it was given, and the default of the file everywhere else."""
    overlay = {
        "base_config": "qwen3_omni_moe.yaml",
        "stages": [
            {"stage_id": 0, "max_num_seqs": 8, "max_model_len": 16384},
            {"stage_id": 1, "gpu_memory_utilization": 0.5, "max_model_len": 16384},
            {"stage_id": 2, "max_model_len": 16384},
        ],
    }
    plan = planned("qwen3_omni_moe", overlay)
    keys = ("gpu_memory_utilization", "max_num_seqs", "max_model_len")
    given = [args(stage) for stage in plan.stages]
    assert [tuple(stage[key] for key in keys) for stage in given] == [
        (0.9, 8, 16384),
        (0.5, 16, 16384),
        (0.1, 64, 16384),
    ]


def test_the_talker_ends_at_the_end_of_the_codec_and_is_never_text() -> None:
    """A deploy file can add ends, and take none away."""
    params = {"stop_token_ids": [1], "detokenize": True}
    overlay = {"stages": [{"stage_id": 1, "default_sampling_params": params}]}
    result = made("qwen3_omni_moe", overlay)
    assert told(result) == [
        "PL026: `talker.detokenize` is `false`: the model does not take another value"
    ]
    assert result.plan is not None
    sampling = result.plan.stage(1).sampling
    assert (sampling["detokenize"], sampling["stop_token_ids"]) == (False, (1, 2150))


def test_it_takes_turns_unless_it_is_asked_for_full_duplex() -> None:
    """Sessions end with their connection; model runner `v2` takes them."""
    model = QWEN3_OMNI_MOE.duplex
    assert model is not None
    assert (model.default_session_mode, model.supports_session_resume) == ("turn", False)
    assert model.supports_duplex_mrv2
    assert planned("qwen3_omni_moe").session.mode == "turn"
    asked = {"base_config": "qwen3_omni_moe", "session_mode": "duplex", "model_runner": "v2"}
    assert planned("qwen3_omni_moe", asked).session.mode == "duplex"
