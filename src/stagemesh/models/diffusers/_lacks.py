"""What the stages of a split checkpoint cannot use of the fields and parameters of their kinds.

A field that acts on a component is one of the stage that has it. Where it is not plain that nothing
in a stage could act on a field, as with loading and with compiling, the stage keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from stagemesh.spec.bounds import Range
from stagemesh.spec.frozen import frozen


@frozen
class PromptParams:
    """What a request may say to the text encoder of a split checkpoint."""

    negative_prompt: str | None = None
    """What the result should not show; guidance leads away from it."""
    max_sequence_length: Annotated[int, Range(minimum=1)] | None = None
    """Most tokens of the prompt; longer ones are cut."""


def _each(reason: str, *names: str) -> Mapping[str, str]:
    return dict.fromkeys(names, reason)


_DECODING: Final = "the VAE is the stage `vae` here; give it there"
_READING: Final = "prompts are read by the stage `text_encoder` here; give it there"
_DENOISING: Final = "there is no denoising loop in it; give it to the stage `denoiser`"
_NO_CACHE: Final = "a text encoder reads a prompt in one pass, without a cache"

ENCODER_LACKS: Final = {
    **_each(
        _NO_CACHE,
        "disable_hybrid_kv_cache_manager",
        "enable_chunked_prefill",
        "enable_prefix_caching",
        "kv_cache_dtype",
        "kv_cache_memory_bytes",
        "kv_transfer_config",
        "mamba_ssm_cache_dtype",
    ),
    **_each(
        "a text encoder does not speak",
        "custom_voice_dir",
        "silence_ban_frames",
        "subtalker_sampling_params",
        "tts_max_instructions_length",
    ),
}
"""Of the fields of stages by tokens."""

DENOISER_LACKS: Final = {
    **_each(
        _DECODING, "vae_fast_path", "vae_use_slicing", "vae_use_tiling", "video_output_transport"
    ),
    **_each(_READING, "auxiliary_text_encoder", "max_sequence_length", "negative_prompt"),
}
"""Of the fields of diffusion stages, and of the parameters of their requests."""

VAE_LACKS: Final = {
    **_each(
        _DENOISING,
        # kernels and numbers of the denoiser
        "diffusion_attention_backend",
        "diffusion_attention_config",
        "diffusion_quantization_config",
        "fa_deterministic",
        "fastvideo_vsa_topk",
        "force_cutlass_fp8",
        "mask_sp_padding",
        "moe_backend",
        # adapters
        "lora_backend",
        "lora_path",
        "lora_scale",
        "max_cpu_loras",
        # the loop
        "boundary_ratio",
        "cache_backend",
        "cache_config",
        "diffusion_kv_cache_dtype",
        "diffusion_kv_cache_skip_layers",
        "diffusion_kv_cache_skip_steps",
        "enable_cache_dit_summary",
        "flow_shift",
        "step_execution",
        # parameters of a request
        "cfg_normalize",
        "eta",
        "guidance_rescale",
        "guidance_scale",
        "guidance_scale_2",
        "num_inference_steps",
        "num_outputs_per_prompt",
        "seed",
        "sigmas",
        "true_cfg_scale",
    ),
    **_each(_READING, "auxiliary_text_encoder", "max_sequence_length", "negative_prompt"),
}
"""Of the same."""
