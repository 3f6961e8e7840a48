"""CogVideoX: one stream of weights for both kinds of tokens, joined by attention."""

from __future__ import annotations

from typing import Final

from stagemesh.models._diffusers.plans.rules import attention, head_counts, network
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
        name="CogVideoXTransformer3DModel",
        library="diffusers",
        family="cogvideox",
        streams=("img", "txt"),
        splits=(
            Split(module=_FIRST, value="hidden_states", dim=1, streams=_IMG, rank=3),
            Split(module=_FIRST, value="encoder_hidden_states", dim=1, streams=("txt",), rank=3),
            # tables of cosines and of sines; the smallest network has none
            Split(module="", value="image_rotary_emb", dim=0, streams=_IMG, rank=2, optional=True),
        ),
        gathers=(Gather(module="proj_out", dim=1, streams=_IMG, rank=3),),
        sites=(
            AttentionSite(module=f"{_BLOCK}.attn1", role=SiteRole.SELF, streams=("txt", "img")),
        ),
        tp=(*attention(_BLOCK, "attn1"), *network(_BLOCK, "ff")),
        attributes=head_counts(f"{_BLOCK}.attn1"),
        blocks=("transformer_blocks",),
        guidance=Guidance(),
    ),
)
