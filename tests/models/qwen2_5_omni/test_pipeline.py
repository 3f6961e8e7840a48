"""Topology and facts of Qwen2.5-Omni."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stagemesh.models.qwen2_5_omni.pipeline import QWEN2_5_OMNI
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import JsonObject
from stagemesh.testing.configs import MemoryConfigs

FIXTURE = Path(__file__).parents[2] / "fixtures" / "qwen2_5_omni" / "config.json"


def facts(config: JsonObject) -> dict[str, StageFacts]:
    """Read the facts of every stage."""
    assert QWEN2_5_OMNI.facts is not None
    return dict(QWEN2_5_OMNI.facts(MemoryConfigs(files={".": config})))


def test_the_public_numbers_are_read_from_their_nesting() -> None:
    """7B: 28 query heads on 4 kv heads in the thinker, 12 on 4 in the talker."""
    found = facts(json.loads(FIXTURE.read_text(encoding="utf-8")))
    assert found == {
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
    assert facts({}) == dict.fromkeys(("thinker", "talker", "code2wav"), StageFacts(num_experts=0))


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
        facts(config)


def test_three_stages_in_a_row_speak_and_write() -> None:
    """Text comes from the thinker, sound from code2wav."""
    assert [stage.input_sources for stage in QWEN2_5_OMNI.stages] == [(), (0,), (1,)]
    outputs = {
        stage.model_stage: stage.final_output_type
        for stage in QWEN2_5_OMNI.stages
        if stage.final_output
    }
    assert outputs == {"thinker": "text", "code2wav": "audio"}
