"""Topology and facts of Qwen3-TTS: talker -> code2wav, or both in one stage.

The talker writes frames of codec tokens, and a small decoder inside it the further codes of each
frame; code2wav turns them into sound. In the one-stage form the talker holds the codec's decoder,
keeps its state from frame to frame, and puts out sound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stagemesh.models._facts import decoder, section
from stagemesh.models._params import TokenParams
from stagemesh.models.qwen3_tts.options import CodecEdge, FusedOptions, TalkerOptions
from stagemesh.models.qwen3_tts.rules import CODE2WAV, TALKER, check_fused, check_two_stages
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import (
    CheckpointConfigs,
    ExecutionType,
    PipelineConfig,
    StagePipelineConfig,
)

_CODEC_FOLDER: Final = "speech_tokenizer"
_TALKER_ARCHITECTURE: Final = "Qwen3TTSTalkerForConditionalGeneration"
_CODEC_END: Final = 2150
_NOT_YET: Final = "the networks of `qwen3_tts` are not connected to an engine yet"


def _talker(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    return {TALKER: decoder(section(configs.root, "talker_config"), configs.root)}


def _facts(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    codec = configs.component(_CODEC_FOLDER)
    return {**_talker(configs), CODE2WAV: decoder(section(codec, "decoder_config"), codec)}


QWEN3_TTS: Final = PipelineConfig(
    model_type="qwen3_tts",
    summary="speech from text, in a voice that is named, described or given as a sound",
    default_deploy_config_name="qwen3_tts",
    model_arch=_TALKER_ARCHITECTURE,
    hf_architectures=("Qwen3TTSForConditionalGeneration",),
    input_modalities=("text", "audio"),
    facts=_facts,
    check=check_two_stages,
    planning_only=_NOT_YET,
    stages=(
        StagePipelineConfig(
            stage_id=0,
            model_stage=TALKER,
            execution_type=ExecutionType.LLM_AR,
            owns_tokenizer=True,
            engine_output_type="latent",
            hf_config_name="talker_config",
            supports_native_mrv2_data_plane=True,
            options=TalkerOptions,
            edge_options=CodecEdge,
            params=TokenParams,
            sampling_constraints={"detokenize": False, "stop_token_ids": (_CODEC_END,)},
            produces_chunks=True,
        ),
        StagePipelineConfig(
            stage_id=1,
            model_stage=CODE2WAV,
            execution_type=ExecutionType.LLM_GENERATION,
            input_sources=(0,),
            final_output=True,
            final_output_type="audio",
            engine_output_type="audio",
            model_subdir=_CODEC_FOLDER,
            model_arch="Qwen3TTSCode2Wav",
            supports_native_mrv2_data_plane=True,
        ),
    ),
)

QWEN3_TTS_FUSED: Final = PipelineConfig(
    model_type="qwen3_tts_fused",
    summary="`qwen3_tts` in one stage on one GPU: the talker decodes its frames itself",
    default_deploy_config_name="qwen3_tts_fused_single_gpu",
    model_arch=_TALKER_ARCHITECTURE,
    variant_of="qwen3_tts",
    input_modalities=("text", "audio"),
    facts=_talker,
    check=check_fused,
    planning_only=_NOT_YET,
    stages=(
        StagePipelineConfig(
            stage_id=0,
            model_stage=TALKER,
            execution_type=ExecutionType.LLM_AR,
            final_output=True,
            final_output_type="audio",
            owns_tokenizer=True,
            engine_output_type="audio",
            weight_folders=(".", _CODEC_FOLDER),
            hf_config_name="talker_config",
            supports_native_mrv2_data_plane=True,
            options=FusedOptions,
            params=TokenParams,
            sampling_constraints={"detokenize": False, "stop_token_ids": (_CODEC_END,)},
            produces_chunks=True,
        ),
    ),
)

PIPELINES: Final = (QWEN3_TTS, QWEN3_TTS_FUSED)
