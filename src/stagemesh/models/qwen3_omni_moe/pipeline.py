"""Topology and facts of Qwen3-Omni: thinker -> talker -> code2wav, or the thinker alone.

Thinker and talker are mixtures of experts; the talker holds a small decoder beside them that
predicts the further codes of a frame. Checkpoints that say `enable_audio_output: false` have the
thinker alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stagemesh.models._facts import decoder, moe_decoder, section, with_encoders
from stagemesh.models._params import TokenParams
from stagemesh.models._talkers import CodecChunks
from stagemesh.spec.duplex import DuplexModel
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import (
    CheckpointConfigs,
    ExecutionType,
    JsonObject,
    PipelineConfig,
    StagePipelineConfig,
)

_ARCHITECTURE: Final = "Qwen3OmniMoeForConditionalGeneration"
_INPUTS: Final = ("text", "image", "audio", "video")
_SPEAKS: Final = "enable_audio_output"


def _is_whole(config: JsonObject) -> bool:
    return config.get(_SPEAKS, True) is True


def _is_thinker(config: JsonObject) -> bool:
    return config.get(_SPEAKS) is False


def _thinker(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    config = configs.root
    facts = moe_decoder(section(config, "thinker_config", "text_config"), config)
    return {"thinker": with_encoders(facts, section(config, "thinker_config"))}


def _facts(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    config = configs.root
    return {
        **_thinker(configs),
        "talker": moe_decoder(section(config, "talker_config", "text_config"), config),
        "code2wav": decoder(section(config, "code2wav_config"), config),
    }


QWEN3_OMNI_MOE: Final = PipelineConfig(
    model_type="qwen3_omni_moe",
    summary="text, image, audio and video in, text and speech out; mixtures of experts",
    default_deploy_config_name="qwen3_omni_moe",
    model_arch=_ARCHITECTURE,
    hf_architectures=(_ARCHITECTURE,),
    hf_config_predicate=_is_whole,
    input_modalities=_INPUTS,
    duplex=DuplexModel(
        plugin="stagemesh.models.qwen3_omni_moe.duplex.TurnCommit",
        supports_session_resume=False,
        supports_concurrent_sessions=True,
        supports_duplex_mrv2=True,
    ),
    facts=_facts,
    planning_only="the networks of `qwen3_omni_moe` are not connected to an engine yet",
    stages=(
        StagePipelineConfig(
            stage_id=0,
            model_stage="thinker",
            execution_type=ExecutionType.LLM_AR,
            final_output=True,
            final_output_type="text",
            owns_tokenizer=True,
            engine_output_type="text+latent",
            hf_config_name="thinker_config",
            requires_multimodal_data=True,
            supports_native_mrv2_data_plane=True,
            produces_chunks=True,
        ),
        StagePipelineConfig(
            stage_id=1,
            model_stage="talker",
            execution_type=ExecutionType.LLM_AR,
            input_sources=(0,),
            engine_output_type="latent",
            hf_config_name="talker_config",
            supports_native_mrv2_data_plane=True,
            edge_options=CodecChunks,
            params=TokenParams,
            sampling_constraints={"detokenize": False, "stop_token_ids": (2150,)},
            produces_chunks=True,
        ),
        StagePipelineConfig(
            stage_id=2,
            model_stage="code2wav",
            execution_type=ExecutionType.LLM_GENERATION,
            input_sources=(1,),
            final_output=True,
            final_output_type="audio",
            engine_output_type="audio",
            hf_config_name="code2wav_config",
            supports_native_mrv2_data_plane=True,
        ),
    ),
)

QWEN3_OMNI_MOE_THINKER_ONLY: Final = PipelineConfig(
    model_type="qwen3_omni_moe_thinker_only",
    summary="the thinker of `qwen3_omni_moe` alone: text out",
    default_deploy_config_name="qwen3_omni_moe_thinker_only",
    model_arch=_ARCHITECTURE,
    hf_config_predicate=_is_thinker,
    variant_of="qwen3_omni_moe",
    input_modalities=_INPUTS,
    facts=_thinker,
    planning_only="the networks of `qwen3_omni_moe` are not connected to an engine yet",
    stages=(
        StagePipelineConfig(
            stage_id=0,
            model_stage="thinker",
            execution_type=ExecutionType.LLM_AR,
            final_output=True,
            final_output_type="text",
            owns_tokenizer=True,
            engine_output_type="text",
            hf_config_name="thinker_config",
            requires_multimodal_data=True,
        ),
    ),
)

PIPELINES: Final = (QWEN3_OMNI_MOE, QWEN3_OMNI_MOE_THINKER_ONLY)
