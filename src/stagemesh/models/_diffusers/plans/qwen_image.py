"""Qwen-Image: two streams of their own in every block, joined by attention."""

from __future__ import annotations

from typing import Final

from stagemesh.models._diffusers.plans.imported import imported
from stagemesh.models._diffusers.plans.rules import counted, head_counts
from stagemesh.spec.model_plan import (
    AttentionSite,
    Gather,
    Guidance,
    HeadAttribute,
    ModelPlan,
    Normalise,
    SiteRole,
    Split,
)

_BLOCKS: Final = "transformer_blocks"
_EVERY: Final = f"{_BLOCKS}.*"
_FIRST: Final = f"{_BLOCKS}.0"
_IMG: Final = ("img",)
_TXT: Final = ("txt",)

PLANS: Final = (
    ModelPlan(
        name="QwenImageTransformer2DModel",
        library="diffusers",
        family="qwen_image",
        streams=("img", "txt"),
        splits=(
            Split(module=_FIRST, value="hidden_states", dim=1, streams=_IMG, rank=3),
            Split(module=_FIRST, value="encoder_hidden_states", dim=1, streams=_TXT, rank=3),
            Split(
                module=_EVERY,
                value="encoder_hidden_states_mask",
                dim=1,
                streams=_TXT,
                rank=2,
                optional=True,
            ),
            Split(
                module=_EVERY, value="modulate_index", dim=1, streams=_IMG, rank=2, optional=True
            ),
            Split(module="pos_embed", value=0, dim=0, streams=_IMG, rank=2),
            Split(module="pos_embed", value=1, dim=0, streams=_TXT, rank=2),
            Split(
                module="",
                value="controlnet_block_samples",
                dim=1,
                streams=_IMG,
                rank=3,
                optional=True,
            ),
        ),
        gathers=(Gather(module="proj_out", dim=1, streams=_IMG, rank=3),),
        sites=(
            AttentionSite(
                module=f"{_EVERY}.attn", role=SiteRole.SELF, streams=("txt", "img"), masked=True
            ),
        ),
        tp=tuple(counted(imported("QwenImageTransformer2DModel").tp, "attn")),
        # the width of a head is `inner_dim` over `heads`
        attributes=(
            *head_counts(f"{_EVERY}.attn"),
            HeadAttribute(module=f"{_EVERY}.attn", name="inner_dim"),
        ),
        blocks=(_BLOCKS,),
        guidance=Guidance(normalise=Normalise.LAST_DIM),
    ),
)
