"""FLUX.1 and FLUX.2: both streams are cut, and attention joins them."""

from __future__ import annotations

from typing import Final

from stagemesh.models._diffusers.plans.imported import imported
from stagemesh.models._diffusers.plans.rules import counted, head_counts
from stagemesh.spec.model_plan import (
    AttentionSite,
    Gather,
    Guidance,
    ModelPlan,
    SiteRole,
    Split,
)

_BLOCKS: Final = "transformer_blocks"
_SINGLE: Final = "single_transformer_blocks"
_JOINED: Final = ("txt", "img")
_SITES: Final = tuple(
    AttentionSite(module=f"{blocks}.*.attn", role=SiteRole.SELF, streams=_JOINED)
    for blocks in (_BLOCKS, _SINGLE)
)


def _tokens(ids_dim: int) -> tuple[Split, ...]:
    """What a call is given, before anything is computed of it; positions are those of tokens."""
    return (
        Split(module="", value="hidden_states", dim=1, streams=("img",), rank=3),
        Split(module="", value="encoder_hidden_states", dim=1, streams=("txt",), rank=3),
        Split(module="", value="img_ids", dim=ids_dim, streams=("img",), rank=ids_dim + 2),
        Split(module="", value="txt_ids", dim=ids_dim, streams=("txt",), rank=ids_dim + 2),
    )


_GATHER: Final = Gather(module="proj_out", dim=1, streams=("img",), rank=3)
_HEADS: Final = head_counts(f"{_BLOCKS}.*.attn", f"{_SINGLE}.*.attn")


def _added(name: str) -> Split:
    """What a control network adds to the picture after each block."""
    return Split(module="", value=name, dim=1, streams=("img",), rank=3, optional=True)


PLANS: Final = (
    ModelPlan(
        name="FluxTransformer2DModel",
        library="diffusers",
        family="flux",
        streams=("img", "txt"),
        splits=(
            *_tokens(0),
            _added("controlnet_block_samples"),
            _added("controlnet_single_block_samples"),
        ),
        gathers=(_GATHER,),
        sites=_SITES,
        tp=tuple(counted(imported("FluxTransformer2DModel").tp, "attn")),
        attributes=_HEADS,
        blocks=(_BLOCKS, _SINGLE),
        guidance=Guidance(),
    ),
    ModelPlan(
        name="Flux2Transformer2DModel",
        library="diffusers",
        family="flux2",
        streams=("img", "txt"),
        splits=_tokens(1),
        gathers=(_GATHER,),
        sites=_SITES,
        tp=tuple(counted(imported("Flux2Transformer2DModel").tp, "attn")),
        attributes=_HEADS,
        blocks=(_BLOCKS, _SINGLE),
        guidance=Guidance(),
    ),
)
