"""Facts, profiles and rules of MOSS-TTS Local."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from stagemesh.models.moss_tts_local.pipeline import MOSS_TTS_LOCAL
from stagemesh.spec.facts import StageFacts
from tests.models.shipping import args, facts, facts_of, made, planned, told

NPU: Final = "1xAscend910B"


def test_the_public_numbers_are_read() -> None:
    """The codec is a checkpoint of its own, about which nothing is known here."""
    assert facts_of(MOSS_TTS_LOCAL, "moss_tts_local") == {
        "talker": StageFacts(
            num_attention_heads=32,
            num_kv_heads=8,
            num_layers=36,
            num_experts=0,
            hidden_size=2560,
            intermediate_size=9728,
            head_dim=128,
        ),
        "codec": StageFacts(num_experts=0),
    }
    assert (
        facts(MOSS_TTS_LOCAL, {"audio_tokenizer": {"hidden_size": 4}})["codec"].hidden_size is None
    )


def test_cuda_runs_128_streams_with_the_newer_runner() -> None:
    """With a cache of 32 GiB, graphs of every batch, and 16 chunks or 6 ms to wait for."""
    plan = planned("moss_tts_local")
    talker, codec = plan.stages
    [edge] = plan.edges
    assert [stage.setup.runner for stage in plan.stages] == ["v2", "v2"]
    assert [stage.replicas[0].ranks[0].device for stage in plan.stages] == [0, 0]
    assert plan.cuda_mps
    said = [args(stage) for stage in plan.stages]
    assert [each["max_num_seqs"] for each in said] == [128, 128]
    assert said[0]["max_num_batched_tokens"] == 512
    assert said[0]["kv_cache_memory_bytes"] == 32 * 2**30
    assert said[0]["enable_prefix_caching"] is True
    assert codec.model_args == {"codec_attention_backend": "triton_slot"}
    assert edge.model_options == {
        "codec_chunk_frames": 15,
        "codec_left_context_frames": 0,
        "initial_codec_chunk_frames": 1,
        "codec_chunk_ramp": (),
        "talker_first_audio": True,
        "generation_min_batch_size": 16,
        "generation_max_wait_ms": 6.0,
        "generation_coalescing_policy": "fixed",
    }
    assert talker.sampling["stop_token_ids"] == (151645,)


@pytest.mark.parametrize("devices", [NPU, "1xMI300X", "1xMax1550", "1xMTTS4000"])
def test_other_platforms_run_64_streams_with_the_older_runner(devices: str) -> None:
    """Without MPS, and with no kernels of CUDA."""
    plan = planned("moss_tts_local", devices=devices)
    assert {stage.setup.runner for stage in plan.stages} == {"v1"}
    assert [args(stage)["max_num_seqs"] for stage in plan.stages] == [64, 64]
    assert plan.stage(1).model_args == {"codec_attention_backend": "sdpa"}
    assert not plan.cuda_mps


def test_ascend_captures_graphs_of_the_codec_with_both_runners() -> None:
    """The newer one by a profile of its own, which inherits them."""
    for profile, runner in (("moss_tts_local", "v1"), ("moss_tts_local_npu_mrv2", "v2")):
        plan = planned("moss_tts_local", profile, NPU)
        assert {stage.setup.runner for stage in plan.stages} == {runner}
        captured = args(plan.stage(1))["compilation_config"]
        assert isinstance(captured, Mapping)
        assert list(captured["cudagraph_capture_sizes"]) == [1, 2, 4, 8, 16, 32, 64]


RULES: Final[dict[str, tuple[Mapping[str, object], list[str]]]] = {
    "a prefix cache": ({"enable_prefix_caching": True}, []),
    "whole payloads": (
        {"async_chunk": False},
        ["MD029: `talker_first_audio` needs `async_chunk: true` for `talker`"],
    ),
    "two ranks": (
        {"stages": [{"stage_id": 0, "tensor_parallel_size": 2, "devices": "0,1"}]},
        ["MD029: `talker_first_audio` needs one rank instead of `tp` = `2` for `talker`"],
    ),
    "another process": (
        {"stages": [{"stage_id": 0, "distributed_executor_backend": "mp"}]},
        ["MD029: `talker_first_audio` needs `distributed_executor_backend: uni` for `talker`"],
    ),
    "without it": (
        {"async_chunk": False, "connectors": {"shm": {"extra": {"talker_first_audio": False}}}},
        [],
    ),
}
"""What is laid on the default profile, and what is said about it."""


@pytest.mark.parametrize("case", RULES)
def test_the_early_first_frame_says_what_it_needs(case: str) -> None:
    """On CUDA, where the talker decodes it."""
    changes, messages = RULES[case]
    overlay = {"base_config": "moss_tts_local.yaml", **changes}
    assert told(made("moss_tts_local", overlay)) == messages


def test_where_the_codec_decodes_it_nothing_is_needed() -> None:
    """On Ascend."""
    overlay = {"base_config": "moss_tts_local_npu_mrv2.yaml", "async_chunk": False}
    assert planned("moss_tts_local", overlay, NPU).async_chunk is False
