"""Facts, stages and profiles of Qwen3-TTS."""

from __future__ import annotations

from typing import Final

import pytest

from stagemesh.config.plain import plain_fields
from stagemesh.models.qwen3_tts.options import CodecEdge
from stagemesh.models.qwen3_tts.pipeline import QWEN3_TTS, QWEN3_TTS_FUSED
from stagemesh.spec.facts import StageFacts
from tests.models.shipping import args, facts, facts_of, planned

TALKER: Final = StageFacts(
    num_attention_heads=16,
    num_kv_heads=8,
    num_layers=28,
    num_experts=0,
    hidden_size=2048,
    intermediate_size=6144,
    head_dim=128,
    vocab_size=3072,
    max_model_len=32768,
    num_parameters=28 * 2048 * (2 * 128 * 24 + 3 * 6144) + 2 * 3072 * 2048,
)
CODE2WAV: Final = StageFacts(
    num_attention_heads=16,
    num_kv_heads=16,
    num_layers=8,
    num_experts=0,
    hidden_size=512,
    intermediate_size=1024,
    head_dim=64,
    max_model_len=8000,
)
STOPS: Final = {"detokenize": False, "stop_token_ids": (2150,)}


def test_the_public_numbers_are_read_from_both_configurations() -> None:
    """The codec has a folder and a configuration of its own."""
    assert facts_of(QWEN3_TTS, "qwen3_tts") == {"talker": TALKER, "code2wav": CODE2WAV}
    assert facts_of(QWEN3_TTS_FUSED, "qwen3_tts") == {"talker": TALKER}


def test_what_a_checkpoint_does_not_say_stays_unknown() -> None:
    """Nothing is guessed but that the networks are dense."""
    assert facts(QWEN3_TTS, {}) == dict.fromkeys(("talker", "code2wav"), StageFacts(num_experts=0))


def test_the_type_of_all_weights_may_stand_around_the_sections() -> None:
    """A section says it for itself, or the file does for all."""
    config = {"dtype": "bfloat16", "talker_config": {}}
    codec = {"torch_dtype": "bfloat16", "decoder_config": {"torch_dtype": "float32"}}
    found = facts(QWEN3_TTS, {".": config, "speech_tokenizer": codec})
    assert {name: each.weight_dtype for name, each in found.items()} == {
        "talker": "bfloat16",
        "code2wav": "float32",
    }


def test_two_stages_hand_over_codec_frames() -> None:
    """Sound comes from the codec, which lies in a folder of its own."""
    plan = planned("qwen3_tts")
    assert [stage.final_output_type for stage in plan.stages] == [None, "audio"]
    assert [stage.model_subdir for stage in plan.stages] == [".", "speech_tokenizer"]
    assert [(edge.payload_type, edge.chunked) for edge in plan.edges] == [("latent", True)]
    assert STOPS.items() <= plan.stage(0).sampling.items()


def test_one_stage_has_no_edge_and_puts_out_sound() -> None:
    """In chunks all the same."""
    plan = planned("qwen3_tts", "qwen3_tts_fused_single_gpu")
    assert (plan.pipeline, plan.edges, plan.async_chunk) == ("qwen3_tts_fused", (), True)
    assert [stage.final_output_type for stage in plan.stages] == ["audio"]
    assert plan.stage(0).setup.executor == "uni"
    assert STOPS.items() <= plan.stage(0).sampling.items()


PROFILES: Final[dict[str, tuple[str, list[int], str, bool]]] = {
    "qwen3_tts": ("v2", [1], "00", False),
    "qwen3_tts_mrv2": ("v2", [1], "00", False),
    "qwen3_tts_high_concurrency": ("v1", [1], "01", False),
    "qwen3_tts_high_concurrency_mrv2": ("v2", [1, 2], "01", False),
    "qwen3_tts_high_concurrency_mrv2_b4": ("v2", [1, 2, 3, 4], "01", False),
    "qwen3_tts_high_concurrency_mrv2_single_gpu": ("v2", [*range(1, 9)], "00", True),
}
"""Runner, batches with a graph, device of each stage, and MPS, of every profile of two stages."""


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_of_two_stages_is_what_its_name_says(name: str) -> None:
    """Both stages take one runner; the first frame is decoded by the talker in all of them."""
    runner, batches, devices, mps = PROFILES[name]
    plan = planned("qwen3_tts", name, "2xH200")
    [edge] = plan.edges
    assert [stage.setup.runner for stage in plan.stages] == [runner, runner]
    assert edge.model_options["decode_cudagraph_batch_sizes"] == tuple(batches)
    assert edge.model_options["decode_batch_max_size"] == max(batches)
    assert edge.model_options["talker_first_audio"] is True
    assert "".join(str(stage.replicas[0].ranks[0].device) for stage in plan.stages) == devices
    assert plan.cuda_mps is mps
    assert args(plan.stage(0))["max_num_batched_tokens"] == 512


def test_the_edge_has_the_context_of_the_decoder() -> None:
    """72 frames to the left, and the first chunk of one frame."""
    [edge] = planned("qwen3_tts").edges
    given = {"initial_codec_chunk_frames": 1, "talker_first_audio": True}
    assert edge.model_options == {**plain_fields(CodecEdge()), **given}
    assert edge.model_options["codec_left_context_frames"] == 72


def test_an_overlay_takes_back_the_early_first_frame() -> None:
    """The documented one, laid on a file that ships."""
    extra = {"talker_first_audio": False}
    overlay = {
        "base_config": "qwen3_tts.yaml",
        "connectors": {"connector_of_shared_memory": {"extra": extra}},
    }
    [edge] = planned("qwen3_tts", overlay).edges
    assert edge.model_options["talker_first_audio"] is False
    assert edge.model_options["initial_codec_chunk_frames"] == 1


def test_an_overlay_gives_the_first_frame_of_one_stage_a_queue() -> None:
    """The documented one, laid on a file that ships."""
    options = {
        "talker_stream_decode": True,
        "talker_stream_first_audio": True,
        "ref_code_context_frames": 72,
        "code_predictor_kv_cache": True,
        "code_predictor_fused_sampling": True,
        "code_predictor_fused": True,
    }
    overlay = {
        "base_config": "qwen3_tts_fused_single_gpu.yaml",
        "stages": [{"stage_id": 0, "additional_config": options}],
    }
    assert planned("qwen3_tts", overlay).stage(0).model_args == options


def test_other_platforms_keep_the_older_runner() -> None:
    """Their sections say so; the first frame then comes from the codec."""
    for devices in ("1xAscend910B", "1xMax1550", "1xMI300X", "1xMTTS4000"):
        plan = planned("qwen3_tts", "qwen3_tts_mrv2", devices)
        assert [stage.setup.runner for stage in plan.stages] == ["v1", "v1"]


def test_a_copy_with_the_older_runner_takes_it() -> None:
    """`model_runner: v1` is the way back."""
    plan = planned("qwen3_tts", {"base_config": "qwen3_tts.yaml", "model_runner": "v1"})
    assert [stage.setup.runner for stage in plan.stages] == ["v1", "v1"]
