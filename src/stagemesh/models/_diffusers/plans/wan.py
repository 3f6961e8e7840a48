"""Wan 2.1 and 2.2: attention to the clip, and another to the prompt, which stays whole."""

from __future__ import annotations

from typing import Final

from stagemesh.models._diffusers.plans.rules import (
    HEADS,
    attention,
    head_counts,
    network,
    norms,
)
from stagemesh.spec.model_plan import (
    AttentionSite,
    Gather,
    Guidance,
    ModelPlan,
    SiteRole,
    Split,
    TpRule,
    TpStyle,
)

_BLOCK: Final = "blocks.*"
_IMG: Final = ("img",)
_PICTURE: Final = tuple(
    TpRule(
        module=f"{_BLOCK}.attn2.{name}",
        style=TpStyle.COLUMN,
        pieces=f"attn2.{HEADS}",
        optional=True,
    )
    for name in ("add_k_proj", "add_v_proj")
)
"""Keys and values of the picture that a clip begins with."""

PLANS: Final = (
    ModelPlan(
        name="WanTransformer3DModel",
        library="diffusers",
        family="wan",
        streams=("img",),
        whole=("txt",),
        splits=(
            Split(module="rope", value=0, dim=1, streams=_IMG, rank=4),
            Split(module="rope", value=1, dim=1, streams=_IMG, rank=4),
            Split(module="blocks.0", value="hidden_states", dim=1, streams=_IMG, rank=3),
            # Wan 2.2 may have a time step for every token
            Split(module="", value="timestep", dim=1, streams=_IMG, rank=2, optional=True),
        ),
        gathers=(Gather(module="proj_out", dim=1, streams=_IMG, rank=3),),
        sites=(
            AttentionSite(module=f"{_BLOCK}.attn1", role=SiteRole.SELF, streams=_IMG),
            # a second call looks at the picture that the clip begins with
            AttentionSite(
                module=f"{_BLOCK}.attn2",
                role=SiteRole.CROSS,
                streams=_IMG,
                whole=("txt",),
                calls=2,
            ),
        ),
        tp=(
            *attention(_BLOCK, "attn1"),
            *attention(_BLOCK, "attn2"),
            *_PICTURE,
            *norms(_BLOCK, "attn1.norm_q", "attn1.norm_k", "attn2.norm_q", "attn2.norm_k"),
            *norms(_BLOCK, "attn2.norm_added_k", optional=True),
            *network(_BLOCK, "ffn"),
        ),
        attributes=head_counts(f"{_BLOCK}.attn1", f"{_BLOCK}.attn2"),
        blocks=("blocks",),
        guidance=Guidance(),
    ),
)
