"""Stable Diffusion 3 and 3.5: double blocks, the last of which leaves the prompt behind."""

from __future__ import annotations

from typing import Final

from stagemesh.models._diffusers.plans.rules import (
    added_attention,
    attention,
    head_counts,
    network,
)
from stagemesh.spec.model_plan import (
    AttentionSite,
    Gather,
    Guidance,
    ModelPlan,
    SiteRole,
    Split,
)

_BLOCK: Final = "transformer_blocks.*"
_FIRST: Final = "transformer_blocks.0"
_IMG: Final = ("img",)

PLANS: Final = (
    ModelPlan(
        name="SD3Transformer2DModel",
        library="diffusers",
        family="sd3",
        streams=("img", "txt"),
        splits=(
            Split(module=_FIRST, value="hidden_states", dim=1, streams=_IMG, rank=3),
            Split(module=_FIRST, value="encoder_hidden_states", dim=1, streams=("txt",), rank=3),
            Split(
                module="",
                value="block_controlnet_hidden_states",
                dim=1,
                streams=_IMG,
                rank=3,
                optional=True,
            ),
        ),
        gathers=(Gather(module="proj_out", dim=1, streams=_IMG, rank=3),),
        sites=(
            AttentionSite(module=f"{_BLOCK}.attn", role=SiteRole.SELF, streams=("img", "txt")),
            AttentionSite(
                module=f"{_BLOCK}.attn2", role=SiteRole.SELF, streams=_IMG, optional=True
            ),
        ),
        tp=(
            *attention(_BLOCK, "attn"),
            *added_attention(_BLOCK, "attn"),
            *attention(_BLOCK, "attn2", optional=True),
            *network(_BLOCK, "ff"),
            *network(_BLOCK, "ff_context"),
        ),
        attributes=(
            *head_counts(f"{_BLOCK}.attn"),
            *head_counts(f"{_BLOCK}.attn2", optional=True),
        ),
        blocks=("transformer_blocks",),
        guidance=Guidance(),
    ),
)
