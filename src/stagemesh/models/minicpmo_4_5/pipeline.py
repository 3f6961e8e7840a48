"""Topology and facts of MiniCPM-o 4.5: thinker -> talker -> code2wav.

The thinker is a Qwen3 decoder whose numbers stand at the root of the configuration, the talker a
small one that writes codec tokens, code2wav a flow and a vocoder. Older generations share
`model_type` and architecture: only `version` tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from stagemesh.models._facts import count, decoder, section
from stagemesh.models._params import TokenParams
from stagemesh.models._talkers import Amount, CodecChunks
from stagemesh.spec.duplex import DuplexModel
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import (
    CheckpointConfigs,
    ExecutionType,
    JsonObject,
    PipelineConfig,
    StagePipelineConfig,
)

_ARCHITECTURE: Final = "MiniCPMO45OmniForConditionalGeneration"


@frozen
class CodecEdge(CodecChunks):
    """`extra` of the connector between talker and code2wav."""

    codec_left_context_frames: Amount = 3
    """Frames before a chunk that are decoded with it again, so that chunks join."""


def _is_4_5(config: JsonObject) -> bool:
    architectures = config.get("architectures")
    named = isinstance(architectures, list) and _ARCHITECTURE in architectures
    return named or str(config.get("version")) == "4.5"


def _facts(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    config = configs.root
    talker = section(config, "tts_config")
    return {
        "thinker": decoder(config),
        "talker": replace(decoder(talker, config), vocab_size=count(talker, "num_audio_tokens")),
        "code2wav": StageFacts(num_experts=0),
    }


MINICPMO_4_5: Final = PipelineConfig(
    model_type="minicpmo_4_5",
    summary="text, pictures, sound and clips in, text and speech out, in full duplex too",
    default_deploy_config_name="minicpmo_4_5",
    model_arch=_ARCHITECTURE,
    hf_architectures=("MiniCPMO", _ARCHITECTURE),
    hf_config_predicate=_is_4_5,
    input_modalities=("text", "image", "audio", "video"),
    duplex=DuplexModel(
        plugin="stagemesh.models.minicpmo_4_5.duplex.NativeDuplex",
        default_session_mode="duplex",
        supports_concurrent_sessions=True,
        supports_duplex_mrv2=True,
    ),
    facts=_facts,
    planning_only="the networks of `minicpmo_4_5` are not connected to an engine yet",
    stages=(
        StagePipelineConfig(
            stage_id=0,
            model_stage="thinker",
            execution_type=ExecutionType.LLM_AR,
            final_output=True,
            final_output_type="text",
            owns_tokenizer=True,
            engine_output_type="text+latent",
            requires_multimodal_data=True,
            supports_native_mrv2_data_plane=True,
            sampling_constraints={"stop_token_ids": (151704, 151645)},
            produces_chunks=True,
        ),
        StagePipelineConfig(
            stage_id=1,
            model_stage="talker",
            execution_type=ExecutionType.LLM_AR,
            input_sources=(0,),
            engine_output_type="latent",
            hf_config_name="tts_config",
            supports_native_mrv2_data_plane=True,
            edge_options=CodecEdge,
            params=TokenParams,
            sampling_constraints={"detokenize": False},
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
            model_arch="MiniCPMO45Code2Wav",
            supports_native_mrv2_data_plane=True,
        ),
    ),
)

PIPELINES: Final = (MINICPMO_4_5,)
