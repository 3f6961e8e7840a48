"""VAEs: their tiles, and what the classes of modules inside do to a band of a picture."""

from __future__ import annotations

from typing import Final

from stagemesh.spec.vae_plan import CausalCache, TileRule, VaePlan, VaeRole, VaeRule

_BY_SHARE: Final = TileRule(
    height="tile_sample_min_size",
    width="tile_sample_min_size",
    overlap_height="tile_overlap_factor",
    overlap_width="tile_overlap_factor",
    encode="_tiled_encode",
)
_BY_STEP: Final = TileRule(
    height="tile_sample_min_height",
    width="tile_sample_min_width",
    stride_height="tile_sample_stride_height",
    stride_width="tile_sample_stride_width",
)
_BY_SHARES: Final = TileRule(
    height="tile_sample_min_height",
    width="tile_sample_min_width",
    overlap_height="tile_overlap_factor_height",
    overlap_width="tile_overlap_factor_width",
)


def _rules(**kinds: VaeRole) -> tuple[VaeRule, ...]:
    return tuple(VaeRule(kind=kind, role=role) for kind, role in kinds.items())


_COMMON: Final = _rules(
    SiLU=VaeRole.POINTWISE,
    Dropout=VaeRole.POINTWISE,
    ModuleList=VaeRole.COMPOSED,
    Conv2d=VaeRole.CONV,
)
_KL: Final = (
    *_COMMON,
    *_rules(
        Encoder=VaeRole.COMPOSED,
        Decoder=VaeRole.COMPOSED,
        DownEncoderBlock2D=VaeRole.COMPOSED,
        UpDecoderBlock2D=VaeRole.COMPOSED,
        UNetMidBlock2D=VaeRole.COMPOSED,
        ResnetBlock2D=VaeRole.COMPOSED,
        GroupNorm=VaeRole.STATISTICS,
        Attention=VaeRole.GATHERED,
        Upsample2D=VaeRole.RESIZE,
        Downsample2D=VaeRole.DOWN,
    ),
)


def _causal(prefix: str) -> tuple[VaeRule, ...]:
    """The VAEs of Wan and Qwen-Image: norms along channels, and convolutions that look back."""
    own = {
        f"{prefix}Encoder3d": VaeRole.COMPOSED,
        f"{prefix}Decoder3d": VaeRole.COMPOSED,
        f"{prefix}MidBlock": VaeRole.COMPOSED,
        f"{prefix}UpBlock": VaeRole.COMPOSED,
        f"{prefix}ResidualBlock": VaeRole.COMPOSED,
        f"{prefix}Resample": VaeRole.COMPOSED,
        f"{prefix}Upsample": VaeRole.RESIZE,
        f"{prefix}CausalConv3d": VaeRole.CONV,
        f"{prefix}RMS_norm": VaeRole.POINTWISE,
        f"{prefix}AttentionBlock": VaeRole.GATHERED,
        "Sequential": VaeRole.COMPOSED,
        "Identity": VaeRole.POINTWISE,
        "ZeroPad2d": VaeRole.PAD,
    }
    return (*_COMMON, *_rules(**own))


PLANS: Final = (
    VaePlan(name="AutoencoderKL", library="diffusers", family="vaes", tiles=_BY_SHARE, rules=_KL),
    VaePlan(
        name="AutoencoderKLFlux2", library="diffusers", family="vaes", tiles=_BY_SHARE, rules=_KL
    ),
    VaePlan(
        name="AutoencoderKLWan",
        library="diffusers",
        family="vaes",
        tiles=_BY_STEP,
        rules=(
            *_causal("Wan"),
            *_rules(
                WanResidualDownBlock=VaeRole.COMPOSED,
                WanResidualUpBlock=VaeRole.COMPOSED,
                AvgDown3D=VaeRole.RESIZE,
                DupUp3D=VaeRole.RESIZE,
            ),
        ),
        cache=CausalCache.LIST,
        counted="WanCausalConv3d",
    ),
    VaePlan(
        name="AutoencoderKLQwenImage",
        library="diffusers",
        family="vaes",
        tiles=_BY_STEP,
        rules=_causal("QwenImage"),
        cache=CausalCache.LIST,
        counted="QwenImageCausalConv3d",
    ),
    VaePlan(
        name="AutoencoderKLHunyuanVideo",
        library="diffusers",
        family="vaes",
        tiles=_BY_STEP,
        rules=(
            *_COMMON,
            *_rules(
                HunyuanVideoEncoder3D=VaeRole.COMPOSED,
                HunyuanVideoDecoder3D=VaeRole.COMPOSED,
                HunyuanVideoDownBlock3D=VaeRole.COMPOSED,
                HunyuanVideoUpBlock3D=VaeRole.COMPOSED,
                HunyuanVideoResnetBlockCausal3D=VaeRole.COMPOSED,
                HunyuanVideoDownsampleCausal3D=VaeRole.COMPOSED,
                HunyuanVideoUpsampleCausal3D=VaeRole.RESIZE,
                HunyuanVideoCausalConv3d=VaeRole.CONV,
                # its attention sees frames before its own, over the whole picture
                HunyuanVideoMidBlock3D=VaeRole.GATHERED,
                GroupNorm=VaeRole.STATISTICS,
            ),
        ),
    ),
    # tiles alone: norms of these look at the latent, or at noise of their own
    VaePlan(
        name="AutoencoderKLCogVideoX",
        library="diffusers",
        family="vaes",
        tiles=_BY_SHARES,
        rules=(),
        cache=CausalCache.RETURNED,
    ),
    VaePlan(
        name="AutoencoderKLLTXVideo",
        library="diffusers",
        family="vaes",
        tiles=_BY_STEP,
        rules=(),
    ),
)
