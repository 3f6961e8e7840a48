"""Topology and facts of Qwen2.5-Omni."""

from __future__ import annotations

import pytest

from stagemesh.models.qwen2_5_omni.pipeline import QWEN2_5_OMNI, QWEN2_5_OMNI_THINKER_ONLY
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import JsonObject
from tests.models.shipping import facts, facts_of, planned


def test_the_public_numbers_are_read_from_their_nesting() -> None:
    """7B: 28 query heads on 4 kv heads in the thinker, 12 on 4 in the talker."""
    assert facts_of(QWEN2_5_OMNI, "qwen2_5_omni") == {
        "thinker": StageFacts(
            num_attention_heads=28,
            num_kv_heads=4,
            num_layers=28,
            num_experts=0,
            hidden_size=3584,
            intermediate_size=18944,
            head_dim=128,
            vocab_size=152064,
            max_model_len=32768,
            num_parameters=28 * 3584 * (2 * 128 * 32 + 3 * 18944) + 2 * 152064 * 3584,
        ),
        "talker": StageFacts(
            num_attention_heads=12,
            num_kv_heads=4,
            num_layers=24,
            num_experts=0,
            hidden_size=896,
            intermediate_size=18944,
            head_dim=128,
            vocab_size=8448,
            max_model_len=32768,
            num_parameters=24 * 896 * (2 * 128 * 16 + 3 * 18944) + 2 * 8448 * 896,
        ),
        "code2wav": StageFacts(
            num_attention_heads=16,
            num_kv_heads=16,
            num_layers=22,
            num_experts=0,
            hidden_size=1024,
            head_dim=64,
        ),
    }


def test_what_a_checkpoint_does_not_say_stays_unknown() -> None:
    """Nothing is guessed but that the network is dense."""
    expected = dict.fromkeys(("thinker", "talker", "code2wav"), StageFacts(num_experts=0))
    assert facts(QWEN2_5_OMNI, {}) == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"thinker_config": 1}, "`thinker_config` must be a mapping, got `1`"),
        ({"thinker_config": {"text_config": []}}, "`thinker_config.text_config` must be a mapping"),
        (
            {"talker_config": {"hidden_size": "8"}},
            "`hidden_size` must be a whole number, got `'8'`",
        ),
        ({"talker_config": {"vocab_size": True}}, "`vocab_size` must be a whole number"),
    ],
)
def test_a_fact_of_the_wrong_type_is_named(config: JsonObject, message: str) -> None:
    """With the path to it."""
    with pytest.raises(TypeError, match=message):
        facts(QWEN2_5_OMNI, {".": config})


def test_three_stages_in_a_row_speak_and_write() -> None:
    """Text comes from the thinker, sound from code2wav."""
    assert [stage.input_sources for stage in QWEN2_5_OMNI.stages] == [(), (0,), (1,)]
    outputs = {
        stage.model_stage: stage.final_output_type
        for stage in QWEN2_5_OMNI.stages
        if stage.final_output
    }
    assert outputs == {"thinker": "text", "code2wav": "audio"}


def test_a_deploy_file_chooses_the_thinker_alone() -> None:
    """One stage with the same numbers; the checkpoint's own keys never lead to it."""
    thinker = facts_of(QWEN2_5_OMNI, "qwen2_5_omni")["thinker"]
    assert facts_of(QWEN2_5_OMNI_THINKER_ONLY, "qwen2_5_omni") == {"thinker": thinker}
    plan = planned("qwen2_5_omni", "qwen2_5_omni_thinker_only")
    assert [(stage.name, stage.final_output_type) for stage in plan.stages] == [("thinker", "text")]
    assert planned("qwen2_5_omni").pipeline == "qwen2_5_omni"
