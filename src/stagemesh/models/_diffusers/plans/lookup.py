"""Which plan a class has; its file is loaded when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

from stagemesh.spec.model_plan import ModelPlan
from stagemesh.spec.vae_plan import VaePlan

FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "flux": ("FluxTransformer2DModel", "Flux2Transformer2DModel"),
    "qwen_image": ("QwenImageTransformer2DModel",),
    "wan": ("WanTransformer3DModel",),
    "sd3": ("SD3Transformer2DModel",),
    "crossing": ("PixArtTransformer2DModel", "LTXVideoTransformer3DModel"),
    "cogvideox": ("CogVideoXTransformer3DModel",),
    "z_image": ("ZImageTransformer2DModel",),
    "hunyuan_video": ("HunyuanVideoTransformer3DModel",),
    "text_encoders": (
        "T5EncoderModel",
        "UMT5EncoderModel",
        "CLIPTextModel",
        "CLIPTextModelWithProjection",
        "Qwen2_5_VLForConditionalGeneration",
        "Mistral3ForConditionalGeneration",
        "Qwen3Model",
        "LlamaModel",
    ),
    "vaes": (
        "AutoencoderKL",
        "AutoencoderKLFlux2",
        "AutoencoderKLWan",
        "AutoencoderKLQwenImage",
        "AutoencoderKLHunyuanVideo",
        "AutoencoderKLCogVideoX",
        "AutoencoderKLLTXVideo",
    ),
}
"""Classes of each file here."""
_FILE_OF: Final = {name: file for file, names in FILES.items() for name in names}


def _all_of(name: str) -> tuple[Any, ...]:
    file = _FILE_OF.get(name)
    if file is None:
        return ()
    plans: tuple[Any, ...] = importlib.import_module(f"{__package__}.{file}").PLANS
    return plans


def model_plan(name: str) -> ModelPlan | None:
    """Return the plan of a class of networks, or `None`."""
    return next(
        (each for each in _all_of(name) if isinstance(each, ModelPlan) and each.name == name), None
    )


def vae_plan(name: str) -> VaePlan | None:
    """Return the plan of a class of VAEs, or `None`."""
    return next(
        (each for each in _all_of(name) if isinstance(each, VaePlan) and each.name == name), None
    )


def all_plans() -> tuple[ModelPlan | VaePlan, ...]:
    """Return every plan, file by file."""
    return tuple(plan for names in FILES.values() for plan in _all_of(names[0]))
