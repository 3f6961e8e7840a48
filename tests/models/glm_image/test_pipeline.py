"""Facts and stages of GLM-Image."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagemesh.models.glm_image.pipeline import GLM_IMAGE
from stagemesh.spec.facts import StageFacts
from tests.models.shipping import FIXTURES, facts, facts_of, made, planned


def test_the_public_numbers_are_read_from_two_folders() -> None:
    """A language model of 40 layers, and a denoiser of 30."""
    assert facts_of(GLM_IMAGE, "glm_image") == {
        "ar": StageFacts(
            num_attention_heads=32,
            num_kv_heads=2,
            num_layers=40,
            num_experts=0,
            hidden_size=4096,
            intermediate_size=13696,
            head_dim=128,
            vocab_size=168064,
            num_parameters=40 * 4096 * (2 * 128 * 34 + 3 * 13696) + 2 * 168064 * 4096,
        ),
        "dit": StageFacts(
            num_attention_heads=32,
            num_kv_heads=32,
            num_layers=30,
            num_experts=0,
            hidden_size=4096,
            head_dim=128,
        ),
    }


def test_what_a_checkpoint_does_not_say_stays_unknown() -> None:
    """Nothing is guessed but that both are dense."""
    assert facts(GLM_IMAGE, {}) == dict.fromkeys(("ar", "dit"), StageFacts(num_experts=0))


def test_ids_go_from_the_language_model_to_the_denoiser() -> None:
    """Whole, since a picture is denoised at once; the end of an image is no text."""
    plan = planned("glm_image")
    [edge] = plan.edges
    assert (edge.payload_type, edge.chunked) == ("token_ids", False)
    assert [stage.final_output_type for stage in plan.stages] == [None, "image"]
    sampling = plan.stage(0).sampling
    assert (sampling["detokenize"], sampling["stop_token_ids"]) == (False, (16385,))


def test_its_language_model_alone_is_no_checkpoint(tmp_path: Path) -> None:
    """The folder of one part has the same `model_type`, and no denoiser."""
    (tmp_path / "config.json").write_bytes(
        (FIXTURES / "glm_image" / "vision_language_encoder" / "config.json").read_bytes()
    )
    [found] = made(tmp_path).diagnostics
    assert found.code == "MD008"
    assert any("`glm_image`" in note.message for note in found.notes)


@pytest.mark.parametrize("degree", [2, 4])
def test_the_denoiser_can_split_its_sequence(degree: int) -> None:
    """Its heads can be divided."""
    devices = ",".join(map(str, range(1, degree + 1)))
    denoiser = {"stage_id": 1, "ulysses_degree": degree, "devices": devices}
    plan = planned("glm_image", {"base_config": "glm_image.yaml", "stages": [denoiser]})
    assert len(plan.stage(1).replicas[0].ranks) == degree
