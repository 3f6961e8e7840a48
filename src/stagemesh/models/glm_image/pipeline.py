"""Topology and facts of GLM-Image: ar -> dit.

The `ar` stage writes discrete ids of a coarse picture from the prompt; the `dit` stage denoises a
picture from them and decodes it. Both lie in one checkpoint of diffusers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stagemesh.models._diffusers.turns import ONE_DENOISER_LACKS
from stagemesh.models._facts import count, decoder, section
from stagemesh.models._params import TokenParams
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import (
    CheckpointConfigs,
    ExecutionType,
    JsonObject,
    PipelineConfig,
    StagePipelineConfig,
)

_CLASS: Final = "GlmImagePipeline"
_AR_FOLDER: Final = "vision_language_encoder"
_DENOISER_FOLDER: Final = "transformer"


def _is_pipeline(config: JsonObject) -> bool:
    """Whether it is the whole checkpoint: the `ar` part alone has a `model_type` of that name."""
    return config.get("_class_name") == _CLASS


def _facts(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    ar, dit = configs.component(_AR_FOLDER), configs.component(_DENOISER_FOLDER)
    heads, head_dim = count(dit, "num_attention_heads"), count(dit, "attention_head_dim")
    return {
        "ar": decoder(section(ar, "text_config"), ar),
        "dit": StageFacts(
            num_attention_heads=heads,
            num_kv_heads=heads,
            num_layers=count(dit, "num_layers"),
            num_experts=0,
            hidden_size=heads * head_dim if heads and head_dim else None,
            head_dim=head_dim,
        ),
    }


GLM_IMAGE: Final = PipelineConfig(
    model_type="glm_image",
    summary="pictures from text and pictures, drafted by a language model",
    default_deploy_config_name="glm_image",
    hf_config_predicate=_is_pipeline,
    diffusers_class_names=(_CLASS,),
    input_modalities=("text", "image"),
    facts=_facts,
    planning_only="the networks of `glm_image` are not connected to an engine yet",
    stages=(
        StagePipelineConfig(
            stage_id=0,
            model_stage="ar",
            execution_type=ExecutionType.LLM_AR,
            owns_tokenizer=True,
            engine_output_type="token_ids",
            model_subdir=_AR_FOLDER,
            model_arch="GlmImageForConditionalGeneration",
            requires_multimodal_data=True,
            params=TokenParams,
            sampling_constraints={"detokenize": False, "stop_token_ids": (16385,)},
        ),
        StagePipelineConfig(
            stage_id=1,
            model_stage="dit",
            execution_type=ExecutionType.DIFFUSION,
            input_sources=(0,),
            final_output=True,
            final_output_type="image",
            engine_output_type="image",
            weight_folders=(_DENOISER_FOLDER, "text_encoder", "vae"),
            model_arch=_CLASS,
            requires_multimodal_data=True,
            is_guided=True,
            lacks=ONE_DENOISER_LACKS,
        ),
    ),
)

PIPELINES: Final = (GLM_IMAGE,)
