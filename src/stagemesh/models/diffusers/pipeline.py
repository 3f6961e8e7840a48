"""Pipelines for checkpoints with a `model_index.json`: one stage, or split into three.

Every class of pipelines that is known by name belongs to a family (`flux`, `wan2_2`, ...), which is
two pipelines made by one function: the whole one that is found from the checkpoint, with the stage
`dit`, and `<family>_split`, which a deploy file names. What no family names is `diffusers`, or
`diffusers_video` where its VAE decodes clips.

The VAE as a stage of its own is a `diffusion` stage: the fields and the axis that are about VAEs
belong to that kind. It has no denoising loop, so `vae_pp` brings its ranks, and the axes that cut a
denoiser do not fit it. What a split stage lacks of its kind stands in `_lacks`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from stagemesh.models.diffusers import _classes as classes
from stagemesh.models.diffusers._components import DECODERS, DENOISERS, ENCODERS
from stagemesh.models.diffusers._lacks import DENOISER_LACKS, ENCODER_LACKS, VAE_LACKS, PromptParams
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import (
    ANY_CLASS,
    CheckpointConfigs,
    ConfigPredicate,
    ExecutionType,
    JsonObject,
    PipelineConfig,
    StagePipelineConfig,
)

_PLANS: Final = "stagemesh.models._diffusers.plans.lookup:all_plans"
_NO_HEADS: Final = "the layers of a VAE are not cut; `vae_pp` cuts the picture over its ranks"


def _whole(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    # every plan loads all declarations, and the facts of one model at most
    from stagemesh.models.diffusers._facts import whole  # noqa: PLC0415

    return whole(configs)


def _split(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    from stagemesh.models.diffusers._facts import split  # noqa: PLC0415

    return split(configs)


def _dit(output: str) -> StagePipelineConfig:
    return StagePipelineConfig(
        stage_id=0,
        model_stage="dit",
        execution_type=ExecutionType.DIFFUSION,
        final_output=True,
        final_output_type=output,
        owns_tokenizer=True,
        engine_output_type="image",  # a clip is a row of pictures
        weight_folders=(*DENOISERS, *ENCODERS, *DECODERS),
    )


def _text_encoder() -> StagePipelineConfig:
    return StagePipelineConfig(
        stage_id=0,
        model_stage="text_encoder",
        execution_type=ExecutionType.LLM_GENERATION,
        owns_tokenizer=True,
        engine_output_type="latent",
        weight_folders=ENCODERS,
        lacks=ENCODER_LACKS,
        params=PromptParams,
    )


def _denoiser() -> StagePipelineConfig:
    return StagePipelineConfig(
        stage_id=1,
        model_stage="denoiser",
        execution_type=ExecutionType.DIFFUSION,
        input_sources=(0,),
        engine_output_type="latent",
        weight_folders=DENOISERS,
        excludes={"vae_pp": "the VAE is the stage `vae` here; give it `vae_pp`"},
        lacks=DENOISER_LACKS,
    )


def _vae(output: str) -> StagePipelineConfig:
    return StagePipelineConfig(
        stage_id=2,
        model_stage="vae",
        execution_type=ExecutionType.DIFFUSION,
        input_sources=(1,),
        final_output=True,
        final_output_type=output,
        engine_output_type="image",
        weight_folders=DECODERS,
        is_guided=False,
        rank_axis="vae_pp",
        lacks=VAE_LACKS,
        excludes={
            "tp": _NO_HEADS,
            "pp": _NO_HEADS,
            "ep": "a VAE has no experts",
            "sp_ulysses": _NO_HEADS,
            "sp_ring": _NO_HEADS,
            "cfg": "guidance ends before the VAE; give `cfg` to `denoiser`",
            "hsdp": "a VAE is small: all of it lies on each of its ranks",
            "dp": "`stage_replica` makes copies of a VAE that serve requests of their own",
        },
    )


def _family(
    name: str,
    summary: str,
    output: str,
    names: Collection[str],
    predicate: ConfigPredicate | None = None,
) -> tuple[PipelineConfig, PipelineConfig]:
    """Return the pipeline that checkpoints of these classes have, and the same one split."""
    reason = f"the networks of `{name}` are not connected to an engine yet"
    return (
        PipelineConfig(
            model_type=name,
            summary=summary,
            default_deploy_config_name="diffusers",
            diffusers_class_names=tuple(names),
            hf_config_predicate=predicate,
            facts=_whole,
            planning_only=reason,
            plans=_PLANS,
            stages=(_dit(output),),
        ),
        PipelineConfig(
            model_type=f"{name}_split",
            summary=f"{summary}; text encoder, denoiser and VAE as stages of their own",
            default_deploy_config_name="diffusers_split",
            diffusers_class_names=tuple(names),
            variant_of=name,
            stage_cli_aliases={"text_encoder_tp_size": ("text_encoder", "tensor_parallel_size")},
            facts=_split,
            planning_only=reason,
            plans=_PLANS,
            stages=(_text_encoder(), _denoiser(), _vae(output)),
        ),
    )


def _is_wan2_2(index: JsonObject) -> bool:
    """Two denoisers that take turns, or a time step for every token, came with Wan 2.2."""
    second = index.get("transformer_2")
    return (isinstance(second, list) and any(second)) or index.get("expand_timesteps") is True


def _is_wan2_1(index: JsonObject) -> bool:
    return not _is_wan2_2(index)


def _decodes_clips(index: JsonObject) -> bool:
    return _vae_class(index) in classes.VIDEO_VAES


def _decodes_pictures(index: JsonObject) -> bool:
    return _vae_class(index) not in classes.VIDEO_VAES | classes.SOUND_VAES


def _vae_class(index: JsonObject) -> str:
    """Class of the VAE; nothing where there is none, or where its entry is malformed."""
    pair = index.get("vae")
    return str(pair[-1]) if isinstance(pair, list) and pair else ""


PIPELINES: Final = (
    *_family("qwen_image", "pictures from text by Qwen-Image", "image", classes.QWEN_IMAGE),
    *_family("flux", "pictures from text by FLUX.1", "image", classes.FLUX),
    *_family("flux2", "pictures from text by FLUX.2", "image", classes.FLUX2),
    *_family("wan2_1", "clips from text by Wan 2.1", "video", classes.WAN, _is_wan2_1),
    *_family("wan2_2", "clips from text by Wan 2.2", "video", classes.WAN, _is_wan2_2),
    *_family("z_image", "pictures from text by Z-Image", "image", classes.Z_IMAGE),
    *_family("sd3", "pictures from text by Stable Diffusion 3", "image", classes.SD3),
    *_family("hunyuan_video", "clips from text by HunyuanVideo", "video", classes.HUNYUAN_VIDEO),
    *_family("ltx", "clips from text by LTX-Video", "video", classes.LTX),
    *_family("pixart", "pictures from text by PixArt", "image", classes.PIXART),
    *_family("cogvideox", "clips from text by CogVideoX", "video", classes.COGVIDEOX),
    *_family("diffusers", "any other pictures", "image", (ANY_CLASS,), _decodes_pictures),
    *_family("diffusers_video", "any other clips", "video", (ANY_CLASS,), _decodes_clips),
)
