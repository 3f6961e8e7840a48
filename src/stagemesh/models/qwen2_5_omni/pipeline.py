"""Topology and facts of Qwen2.5-Omni: thinker -> talker -> code2wav, or the thinker alone.

The thinker understands every modality and writes the text answer, the talker turns its hidden
states into codec tokens, code2wav turns those into a waveform.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stagemesh.models._facts import count, decoder, section, with_encoders
from stagemesh.models._params import TokenParams
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import (
    CheckpointConfigs,
    ExecutionType,
    PipelineConfig,
    StagePipelineConfig,
)

_ARCHITECTURE: Final = "Qwen2_5OmniForConditionalGeneration"
_INPUTS: Final = ("text", "image", "audio", "video")


def _thinker(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    config = configs.root
    facts = decoder(section(config, "thinker_config", "text_config"), config)
    return {"thinker": with_encoders(facts, section(config, "thinker_config"))}


def _facts(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    config = configs.root
    dit = section(config, "token2wav_config", "dit_config")
    return {
        **_thinker(configs),
        "talker": decoder(section(config, "talker_config"), config),
        "code2wav": StageFacts(
            num_attention_heads=count(dit, "num_attention_heads"),
            num_kv_heads=count(dit, "num_attention_heads"),
            num_layers=count(dit, "num_hidden_layers"),
            num_experts=0,
            hidden_size=count(dit, "hidden_size"),
            head_dim=count(dit, "head_dim"),
        ),
    }


QWEN2_5_OMNI: Final = PipelineConfig(
    model_type="qwen2_5_omni",
    summary="text, image, audio and video in, text and speech out",
    default_deploy_config_name="qwen2_5_omni",
    model_arch=_ARCHITECTURE,
    hf_architectures=("Qwen2_5OmniModel", _ARCHITECTURE),
    input_modalities=_INPUTS,
    facts=_facts,
    planning_only="the networks of `qwen2_5_omni` are not connected to an engine yet",
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
            produces_chunks=True,
        ),
        StagePipelineConfig(
            stage_id=1,
            model_stage="talker",
            execution_type=ExecutionType.LLM_AR,
            input_sources=(0,),
            engine_output_type="latent",
            hf_config_name="talker_config",
            params=TokenParams,
            sampling_constraints={"detokenize": False, "stop_token_ids": (8294,)},
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
            hf_config_name="token2wav_config",
        ),
    ),
)

QWEN2_5_OMNI_THINKER_ONLY: Final = PipelineConfig(
    model_type="qwen2_5_omni_thinker_only",
    summary="the thinker of `qwen2_5_omni` alone: text out",
    default_deploy_config_name="qwen2_5_omni_thinker_only",
    model_arch=_ARCHITECTURE,
    variant_of="qwen2_5_omni",
    input_modalities=_INPUTS,
    facts=_thinker,
    planning_only="the networks of `qwen2_5_omni` are not connected to an engine yet",
    stages=(QWEN2_5_OMNI.stages[0],),
)

PIPELINES: Final = (QWEN2_5_OMNI, QWEN2_5_OMNI_THINKER_ONLY)
