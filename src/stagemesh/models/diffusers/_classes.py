"""What each class of pipelines says by its name alone: its own size, its prompt, its guidance.

Sizes are the defaults of a call, so a plan counts the tokens that a request gets which asks for
nothing else. Guidance is what costs a second pass through the denoiser.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from stagemesh.spec.frozen import frozen


@frozen
class PipelineClass:
    """One name of `_class_name` in `model_index.json`."""

    size: tuple[int, int, int] | None = None
    """Frames, height and width in pixels; `None` where the denoiser tells them, or nobody does."""
    text_length: int | None = 0
    """Tokens of a prompt, for denoisers whose attention joins them to the others."""
    pictures: int = 0
    """Pictures of the request whose tokens are joined to those of the result."""
    guided: bool | None = True
    """Whether guidance runs the denoiser twice; `None` where it depends on what the weights are."""


_SQUARE: Final = (1, 1024, 1024)
_QWEN: Final = PipelineClass(size=_SQUARE, text_length=512)
_FLUX: Final = PipelineClass(size=_SQUARE, text_length=512, guided=None)
_FLUX_UNGUIDED: Final = replace(_FLUX, guided=False)
_KONTEXT: Final = replace(_FLUX, pictures=1)
_WAN: Final = PipelineClass(size=(81, 480, 832))
_SD3: Final = PipelineClass(text_length=77 + 256)  # of CLIP and of T5
_HUNYUAN: Final = PipelineClass(size=(129, 720, 1280), text_length=256)
_LTX: Final = PipelineClass(size=(161, 512, 704))
_COGVIDEOX: Final = PipelineClass(text_length=226)

QWEN_IMAGE: Final[Mapping[str, PipelineClass]] = {
    "QwenImagePipeline": _QWEN,
    "QwenImageImg2ImgPipeline": _QWEN,
    "QwenImageInpaintPipeline": _QWEN,
    "QwenImageEditPipeline": replace(_QWEN, pictures=1),
    "QwenImageEditInpaintPipeline": replace(_QWEN, pictures=1),
    "QwenImageEditPlusPipeline": replace(_QWEN, pictures=1),
    "QwenImageLayeredPipeline": replace(_QWEN, size=None),
}
FLUX: Final[Mapping[str, PipelineClass]] = {
    "FluxPipeline": _FLUX,
    "FluxImg2ImgPipeline": _FLUX,
    "FluxInpaintPipeline": _FLUX,
    "FluxKontextPipeline": _KONTEXT,
    "FluxKontextInpaintPipeline": _KONTEXT,
    "FluxFillPipeline": _FLUX_UNGUIDED,
    "FluxControlPipeline": _FLUX_UNGUIDED,
    "FluxControlImg2ImgPipeline": _FLUX_UNGUIDED,
    "FluxControlInpaintPipeline": _FLUX_UNGUIDED,
}
FLUX2: Final[Mapping[str, PipelineClass]] = {
    "Flux2Pipeline": _FLUX_UNGUIDED,
    "Flux2KleinPipeline": replace(_FLUX, guided=True),
    "Flux2KleinInpaintPipeline": replace(_FLUX, guided=True),
    "Flux2KleinKVPipeline": _FLUX_UNGUIDED,
}
WAN: Final[Mapping[str, PipelineClass]] = {
    "WanPipeline": _WAN,
    "WanImageToVideoPipeline": _WAN,
    "WanVideoToVideoPipeline": _WAN,
    "WanDMDPipeline": replace(_WAN, guided=False),
}
Z_IMAGE: Final[Mapping[str, PipelineClass]] = {
    "ZImagePipeline": _QWEN,
    "ZImageImg2ImgPipeline": _QWEN,
    "ZImageInpaintPipeline": _QWEN,
}
SD3: Final[Mapping[str, PipelineClass]] = {
    "StableDiffusion3Pipeline": _SD3,
    "StableDiffusion3Img2ImgPipeline": _SD3,
    "StableDiffusion3InpaintPipeline": _SD3,
    "StableDiffusion3PAGPipeline": _SD3,
    "StableDiffusion3PAGImg2ImgPipeline": _SD3,
}
HUNYUAN_VIDEO: Final[Mapping[str, PipelineClass]] = {
    "HunyuanVideoPipeline": replace(_HUNYUAN, guided=None),
    "HunyuanVideoImageToVideoPipeline": replace(_HUNYUAN, text_length=None, guided=None),
    "HunyuanSkyreelsImageToVideoPipeline": replace(_HUNYUAN, size=(97, 544, 960)),
}
LTX: Final[Mapping[str, PipelineClass]] = {
    "LTXPipeline": _LTX,
    "LTXImageToVideoPipeline": _LTX,
    "LTXConditionPipeline": _LTX,
    "LTXI2VLongMultiPromptPipeline": _LTX,
}
PIXART: Final[Mapping[str, PipelineClass]] = {
    "PixArtAlphaPipeline": PipelineClass(),
    "PixArtSigmaPipeline": PipelineClass(),
    "PixArtSigmaPAGPipeline": PipelineClass(),
}
COGVIDEOX: Final[Mapping[str, PipelineClass]] = {
    "CogVideoXPipeline": _COGVIDEOX,
    "CogVideoXImageToVideoPipeline": _COGVIDEOX,
    "CogVideoXVideoToVideoPipeline": _COGVIDEOX,
    "CogVideoXFunControlPipeline": _COGVIDEOX,
}

VIDEO_VAES: Final = frozenset(
    {
        "AutoencoderKLWan",
        "AutoencoderKLHunyuanVideo",
        "AutoencoderKLHunyuanVideo15",
        "AutoencoderKLLTXVideo",
        "AutoencoderKLLTX2Video",
        "AutoencoderKLCogVideoX",
        "AutoencoderKLAllegro",
        "AutoencoderKLMochi",
        "AutoencoderKLCosmos",
        "AutoencoderKLMagvit",
        "AutoencoderKLMiniMaxH3",
        "AutoencoderKLTemporalDecoder",
        "AutoencoderVidTok",
    }
)
"""Classes of VAEs that decode clips."""
SOUND_VAES: Final = frozenset(
    {
        "AutoencoderOobleck",
        "AutoencoderLongCatAudioDiT",
        "AutoencoderKLMiniMaxH3Audio",
        "AutoencoderKLLTX2Audio",
        "MiniMaxMusic3Vocoder",
    }
)
"""Classes of VAEs that decode sound, for which there is no pipeline."""


def all_classes() -> Iterator[tuple[str, PipelineClass]]:
    """Every class that is known by name."""
    for family in (
        QWEN_IMAGE,
        FLUX,
        FLUX2,
        WAN,
        Z_IMAGE,
        SD3,
        HUNYUAN_VIDEO,
        LTX,
        PIXART,
        COGVIDEOX,
    ):
        yield from family.items()


CLASSES: Final[Mapping[str, PipelineClass]] = dict(all_classes())
"""Classes by name."""
