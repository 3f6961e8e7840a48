"""Topology and facts of `voice_chat`: a written question, a spoken answer.

The thinker is a decoder language model, the talker turns each clause into acoustic latents (86
frames/s), code2wav renders latents into a waveform. All three weights lie in one checkpoint folder
that `stagemesh demo-checkpoint` assembles.
"""

from __future__ import annotations

from collections.abc import Mapping

from stagemesh.models._facts import count, decoder, section
from stagemesh.models.voice_chat.options import (
    Code2WavOptions,
    TalkerOptions,
    TalkerParams,
)
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import (
    CheckpointConfigs,
    ExecutionType,
    PipelineConfig,
    StagePipelineConfig,
)

_HERE = "stagemesh.models.voice_chat"


def _facts(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    config = configs.root
    talker = section(config, "talker_config")
    code2wav = section(config, "code2wav_config")
    return {
        "thinker": decoder(section(config, "thinker_config")),
        "talker": StageFacts(
            num_attention_heads=count(talker, "num_attention_heads"),
            num_kv_heads=count(talker, "num_attention_heads"),
            num_layers=count(talker, "num_hidden_layers"),
            num_experts=0,
            hidden_size=count(talker, "hidden_size"),
        ),
        "code2wav": StageFacts(num_experts=0, hidden_size=count(code2wav, "hidden_size")),
    }


VOICE_CHAT = PipelineConfig(
    model_type="voice_chat",
    summary="speaks the answer to a written question: SmolLM2-135M, a VITS voice, its vocoder",
    default_deploy_config_name="voice_chat",
    facts=_facts,
    checkpoint_recipe=f"{_HERE}.checkpoint:assemble",
    stages=(
        StagePipelineConfig(
            stage_id=0,
            model_stage="thinker",
            execution_type=ExecutionType.LLM_AR,
            final_output=True,
            final_output_type="text",
            owns_tokenizer=True,
            engine_output_type="text",
            model_subdir="thinker",
            produces_chunks=True,
            async_chunk_process_next_stage_input_func=f"{_HERE}.bridges:clauses",
            custom_process_next_stage_input_func=f"{_HERE}.bridges:whole_text",
        ),
        StagePipelineConfig(
            stage_id=1,
            model_stage="talker",
            execution_type=ExecutionType.LLM_GENERATION,
            input_sources=(0,),
            engine_output_type="latent",
            model_subdir="talker",
            loader=f"{_HERE}.talker:load",
            options=TalkerOptions,
            params=TalkerParams,
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
            model_subdir="code2wav",
            loader=f"{_HERE}.code2wav:load",
            options=Code2WavOptions,
            produces_chunks=True,
        ),
    ),
)

PIPELINES = (VOICE_CHAT,)
