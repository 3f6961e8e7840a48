"""Weights of decoders and encoders, counted from a configuration beside published numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from stagemesh.models._facts import decoder, moe_decoder, section, with_encoders

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
QWEN2_5_7B: Final[dict[str, Any]] = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
}
SMOLLM2_135M: Final[dict[str, Any]] = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize(
    ("config", "published"), [(QWEN2_5_7B, 7_615_616_512), (SMOLLM2_135M, 134_515_008)]
)
def test_a_dense_decoder_has_its_published_weights(config: dict[str, Any], published: int) -> None:
    """Within a thousandth: norms and biases are left out."""
    assert decoder(config).num_parameters == pytest.approx(published, rel=1e-3)


def test_a_mixture_counts_every_expert() -> None:
    """Qwen3-30B-A3B, whose name rounds 30.5 billion."""
    config = {
        **QWEN2_5_7B,
        "hidden_size": 2048,
        "head_dim": 128,
        "num_attention_heads": 32,
        "num_hidden_layers": 48,
        "num_experts": 128,
        "moe_intermediate_size": 768,
        "vocab_size": 151936,
    }
    assert moe_decoder(config).num_parameters == pytest.approx(30_532_122_624, rel=1e-3)
    shared = moe_decoder({**config, "shared_expert_intermediate_size": 768}).num_parameters
    assert (shared or 0) - (moe_decoder(config).num_parameters or 0) == 48 * 3 * 2048 * 768
    del config["moe_intermediate_size"]
    assert moe_decoder(config).num_parameters is None


@pytest.mark.parametrize("missing", sorted(set(QWEN2_5_7B)))
def test_a_missing_width_leaves_the_number_open(missing: str) -> None:
    """Nothing is guessed."""
    config = {name: value for name, value in QWEN2_5_7B.items() if name != missing}
    assert decoder(config).num_parameters is None
    assert with_encoders(decoder(config), {}) == decoder(config)


def test_one_table_may_be_embedding_and_head() -> None:
    """As the section says, or else the file around it."""
    untied, tied = decoder(QWEN2_5_7B), decoder(QWEN2_5_7B, {"tie_word_embeddings": True})
    assert (untied.num_parameters or 0) - (tied.num_parameters or 0) == 152064 * 3584
    both = decoder({**QWEN2_5_7B, "tie_word_embeddings": False}, {"tie_word_embeddings": True})
    assert both == untied


def test_a_thinker_holds_its_encoders_as_well() -> None:
    """Those of Qwen3-Omni: about 0.6 and 0.5 billion weights beside 30.5."""
    config = json.loads((FIXTURES / "qwen3_omni_moe" / "config.json").read_text(encoding="utf-8"))
    thinker = section(config, "thinker_config")
    facts = moe_decoder(section(thinker, "text_config"), config)
    added = (with_encoders(facts, thinker).num_parameters or 0) - (facts.num_parameters or 0)
    sound = 32 * 1280 * (4 * 1280 + 2 * 5120)
    picture = 27 * 1152 * (4 * 1152 + 3 * 4304)
    assert added == sound + picture
    assert with_encoders(facts, {}) == facts
