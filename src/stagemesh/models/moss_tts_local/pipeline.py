"""Topology and facts of MOSS-TTS Local 1.5: talker -> codec, 48 kHz stereo.

The talker is a Qwen3 decoder with one small layer that writes the twelve codes of a frame one after
the other. The codec is a checkpoint of its own, which lies in the folder `audio_tokenizer`; it
keeps the state of every stream in a slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal

from stagemesh.models._facts import decoder, section
from stagemesh.models._params import TokenParams
from stagemesh.models._talkers import Amount, Count, FirstAudioChunks, first_audio_findings
from stagemesh.spec.bounds import Range
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.frozen import frozen
from stagemesh.spec.model import ModelFinding, ModelView
from stagemesh.spec.pipeline import (
    CheckpointConfigs,
    ExecutionType,
    PipelineConfig,
    StagePipelineConfig,
)


@frozen
class CodecEdge(FirstAudioChunks):
    """`extra` of the connector between talker and codec."""

    codec_chunk_frames: Count = 15
    """Frames that are handed over together."""
    codec_left_context_frames: Amount = 0
    """Frames before a chunk that are decoded with it again; the codec keeps state instead."""
    initial_codec_chunk_frames: Amount = 1
    """Frames of the first chunk, for an earlier first sound; `0` makes it like the others."""
    generation_min_batch_size: Count = 1
    """Streams with a chunk ready for which the codec stops waiting for more."""
    generation_max_wait_ms: Annotated[float, Range(minimum=0)] = 0.0
    """Longest wait for them; `0` decodes at once."""
    generation_coalescing_policy: Literal["fixed", "idle_wait"] = "fixed"
    """When that wait begins: at once, or with the first chunk after everything was idle."""


@frozen
class CodecOptions:
    """`additional_config` of the codec."""

    codec_attention_backend: Literal["sdpa", "triton", "triton_slot"] = "sdpa"
    """Kernels of the codec's attention; `triton_slot` works on the slots of streams directly."""


def _facts(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    return {
        "talker": decoder(section(configs.root, "qwen3_config"), configs.root),
        "codec": StageFacts(num_experts=0),
    }


def _check(view: ModelView) -> Iterable[ModelFinding]:
    return first_audio_findings(view, "talker", "codec", with_prefix_cache=True)


MOSS_TTS_LOCAL: Final = PipelineConfig(
    model_type="moss_tts_local",
    summary="speech from text in a given voice, 48 kHz stereo",
    default_deploy_config_name="moss_tts_local",
    model_arch="MossTTSLocalModel",
    hf_architectures=("MossTTSLocalModel",),
    input_modalities=("text", "audio"),
    facts=_facts,
    check=_check,
    planning_only="the networks of `moss_tts_local` are not connected to an engine yet",
    stages=(
        StagePipelineConfig(
            stage_id=0,
            model_stage="talker",
            execution_type=ExecutionType.LLM_AR,
            owns_tokenizer=True,
            engine_output_type="latent",
            hf_config_name="qwen3_config",
            supports_native_mrv2_data_plane=True,
            mrv2_platforms=("npu",),
            edge_options=CodecEdge,
            params=TokenParams,
            sampling_constraints={"detokenize": False, "stop_token_ids": (151645,)},
            produces_chunks=True,
        ),
        StagePipelineConfig(
            stage_id=1,
            model_stage="codec",
            execution_type=ExecutionType.LLM_GENERATION,
            input_sources=(0,),
            final_output=True,
            final_output_type="audio",
            engine_output_type="audio",
            model_subdir="audio_tokenizer",
            model_arch="MossTTSCodecDecoder",
            supports_native_mrv2_data_plane=True,
            mrv2_platforms=("npu",),
            options=CodecOptions,
        ),
    ),
)

PIPELINES: Final = (MOSS_TTS_LOCAL,)
