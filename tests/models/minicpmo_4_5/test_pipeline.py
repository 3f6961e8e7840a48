"""Facts, generations and sessions of MiniCPM-o 4.5."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stagemesh.models.minicpmo_4_5.pipeline import MINICPMO_4_5
from stagemesh.spec.facts import StageFacts
from tests.models.shipping import config_of, facts_of, made, planned


def test_the_public_numbers_are_read() -> None:
    """Those of the thinker stand at the root; the talker's tokens are sounds."""
    assert facts_of(MINICPMO_4_5, "minicpmo_4_5") == {
        "thinker": StageFacts(
            num_attention_heads=32,
            num_kv_heads=8,
            num_layers=36,
            num_experts=0,
            hidden_size=4096,
            intermediate_size=12288,
            head_dim=128,
        ),
        "talker": StageFacts(
            num_attention_heads=12,
            num_kv_heads=12,
            num_layers=20,
            num_experts=0,
            hidden_size=768,
            intermediate_size=3072,
            head_dim=64,
            vocab_size=6562,
        ),
        "code2wav": StageFacts(num_experts=0),
    }


def checkpoint(folder: Path, **changes: object) -> Path:
    """A checkpoint with other words at its root."""
    config = {**config_of("minicpmo_4_5"), **changes}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"version": 4.5},
        {"version": None, "architectures": ["MiniCPMO45OmniForConditionalGeneration"]},
    ],
)
def test_the_version_tells_the_generation(tmp_path: Path, changes: dict[str, object]) -> None:
    """As text or number; an architecture of its own needs none."""
    assert planned(checkpoint(tmp_path, **changes)).pipeline == "minicpmo_4_5"


@pytest.mark.parametrize("version", ["2.6", None, [], 45])
def test_an_older_generation_is_refused_with_the_evidence(tmp_path: Path, version: object) -> None:
    """Its architecture is the same."""
    result = made(checkpoint(tmp_path, version=version))
    assert result.plan is None
    [found] = result.diagnostics
    assert found.code == "MD008"
    assert any("`minicpmo_4_5`" in note.message for note in found.notes)


def test_sessions_are_in_full_duplex_unless_told_otherwise() -> None:
    """With both runners."""
    assert planned("minicpmo_4_5").session.mode == "duplex"
    for runner in ("v1", "v2"):
        turns = {"base_config": "minicpmo_4_5.yaml", "model_runner": runner}
        assert planned("minicpmo_4_5", turns).session.mode == "duplex"
        turns["session_mode"] = "turn"
        assert planned("minicpmo_4_5", turns).session.mode == "turn"


def test_two_token_ids_end_the_thinker() -> None:
    """A deploy file need not repeat them."""
    plan = planned("minicpmo_4_5")
    assert plan.stage(0).sampling["stop_token_ids"] == (151704, 151645)
    assert [stage.final_output_type for stage in plan.stages] == ["text", None, "audio"]
    assert [edge.payload_type for edge in plan.edges] == ["text+latent", "latent"]
