"""Topology and facts of PersonaPlex: talker -> code2wav, in full duplex.

The talker is a decoder that takes one frame of 80 ms from the listener and writes one frame of the
speaker, with a small decoder for the codes inside each; code2wav is the Mimi codec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stagemesh.models._params import TokenParams
from stagemesh.models._talkers import Amount, CodecChunks, Count
from stagemesh.spec.duplex import DuplexModel
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import (
    CheckpointConfigs,
    ExecutionType,
    PipelineConfig,
    StagePipelineConfig,
)


@frozen
class CodecEdge(CodecChunks):
    """`extra` of the connector between talker and code2wav."""

    codec_chunk_frames: Count = 5
    """Frames of 80 ms that are handed over together."""
    codec_left_context_frames: Amount = 0
    """Frames before a chunk that are decoded with it again; the codec keeps state instead."""
    initial_codec_chunk_frames: Amount = 1
    """Frames of the first chunk, for an earlier first sound; `0` makes it like the others."""


_RELEASED: Final[Mapping[object, StageFacts]] = {
    "7b-v1": StageFacts(
        num_attention_heads=32,
        num_kv_heads=32,
        num_layers=32,
        num_experts=0,
        hidden_size=4096,
        intermediate_size=11264,
        head_dim=128,
        vocab_size=32000,
        max_model_len=3000,
        num_parameters=8_371_437_000,
        weight_dtype="bfloat16",
    )
}
"""Numbers of the released weights: their configuration names its version and nothing else."""


def _facts(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    version = configs.root.get("version")
    known = _RELEASED.get(version) if isinstance(version, str) else None
    return {
        "talker": known or StageFacts(num_experts=0),
        "code2wav": StageFacts(num_experts=0),
    }


PERSONAPLEX: Final = PipelineConfig(
    model_type="personaplex",
    summary="speech in and speech out at the same time, in a voice and a role",
    default_deploy_config_name="personaplex",
    model_arch="PersonaPlexTalkerForConditionalGeneration",
    hf_architectures=("PersonaPlexTalkerForConditionalGeneration",),
    input_modalities=("audio",),
    duplex=DuplexModel(
        plugin="stagemesh.models.personaplex.duplex.Lockstep",
        supports_session_resume=False,
        supports_concurrent_sessions=True,
    ),
    facts=_facts,
    planning_only="the networks of `personaplex` are not connected to an engine yet",
    stages=(
        StagePipelineConfig(
            stage_id=0,
            model_stage="talker",
            execution_type=ExecutionType.LLM_AR,
            owns_tokenizer=True,
            engine_output_type="latent",
            edge_options=CodecEdge,
            params=TokenParams,
            sampling_constraints={"detokenize": False},
            produces_chunks=True,
        ),
        StagePipelineConfig(
            stage_id=1,
            model_stage="code2wav",
            execution_type=ExecutionType.LLM_GENERATION,
            input_sources=(0,),
            final_output=True,
            final_output_type="audio",
            engine_output_type="audio",
            model_arch="PersonaPlexCode2Wav",
        ),
    ),
)

PIPELINES: Final = (PERSONAPLEX,)
