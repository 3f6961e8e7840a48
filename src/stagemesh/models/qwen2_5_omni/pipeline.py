"""Topology and facts of Qwen2.5-Omni: thinker -> talker -> code2wav.

The thinker understands every modality and writes the text answer, the talker turns its hidden
states into codec tokens, code2wav turns those into a waveform.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stagemesh.models._facts import count, decoder, section
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import (
    CheckpointConfigs,
    ExecutionType,
    PipelineConfig,
    StagePipelineConfig,
)


def _facts(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    config = configs.root
    dit = section(config, "token2wav_config", "dit_config")
    return {
        "thinker": decoder(section(config, "thinker_config", "text_config")),
        "talker": decoder(section(config, "talker_config")),
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
    hf_architectures=("Qwen2_5OmniModel", "Qwen2_5OmniForConditionalGeneration"),
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
            produces_chunks=True,
        ),
        StagePipelineConfig(
            stage_id=1,
            model_stage="talker",
            execution_type=ExecutionType.LLM_AR,
            input_sources=(0,),
            engine_output_type="latent",
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
        ),
    ),
)

PIPELINES: Final = (QWEN2_5_OMNI,)
