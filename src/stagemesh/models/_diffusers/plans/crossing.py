"""PixArt and LTX-Video: attention to the picture, and another to the prompt, which stays whole."""

from __future__ import annotations

from typing import Final

from stagemesh.models._diffusers.plans.rules import (
    attention,
    head_counts,
    network,
    norms,
)
from stagemesh.spec.model_plan import (
    AttentionSite,
    Gather,
    Guidance,
    HeadTable,
    ModelPlan,
    Normalise,
    SiteRole,
    Split,
)

_BLOCK: Final = "transformer_blocks.*"
_IMG: Final = ("img",)
_SITES: Final = (
    AttentionSite(module=f"{_BLOCK}.attn1", role=SiteRole.SELF, streams=_IMG),
    AttentionSite(
        module=f"{_BLOCK}.attn2", role=SiteRole.CROSS, streams=_IMG, whole=("txt",), masked=True
    ),
)
_RULES: Final = (
    *attention(_BLOCK, "attn1"),
    *attention(_BLOCK, "attn2"),
    *network(_BLOCK, "ff"),
)
_HEADS: Final = head_counts(f"{_BLOCK}.attn1", f"{_BLOCK}.attn2")
_GATHER: Final = Gather(module="proj_out", dim=1, streams=_IMG, rank=3)
_FIRST: Final = "transformer_blocks.0.attn1.heads"

PLANS: Final = (
    ModelPlan(
        name="PixArtTransformer2DModel",
        library="diffusers",
        family="pixart",
        streams=_IMG,
        whole=("txt",),
        splits=(
            Split(
                module="transformer_blocks.0",
                value="hidden_states",
                dim=1,
                streams=_IMG,
                rank=3,
            ),
        ),
        gathers=(_GATHER,),
        sites=_SITES,
        tp=_RULES,
        attributes=_HEADS,
        blocks=("transformer_blocks",),
        guidance=Guidance(),
    ),
    ModelPlan(
        name="LTXVideoTransformer3DModel",
        library="diffusers",
        family="ltx",
        streams=_IMG,
        whole=("txt",),
        splits=(
            Split(module="", value="hidden_states", dim=1, streams=_IMG, rank=3),
            # clips that begin with a picture have a time step for every token
            Split(module="", value="timestep", dim=1, streams=_IMG, rank=2, optional=True),
            Split(module="rope", value=0, dim=1, streams=_IMG, rank=3),
            Split(module="rope", value=1, dim=1, streams=_IMG, rank=3),
        ),
        gathers=(_GATHER,),
        sites=_SITES,
        tp=(
            *_RULES,
            *norms(_BLOCK, "attn1.norm_q", "attn1.norm_k", "attn2.norm_q", "attn2.norm_k"),
        ),
        attributes=_HEADS,
        # angles are those of the channels of all heads
        tables=(
            HeadTable(module="rope", value=0, dim=2, pieces=_FIRST),
            HeadTable(module="rope", value=1, dim=2, pieces=_FIRST),
        ),
        blocks=("transformer_blocks",),
        guidance=Guidance(normalise=Normalise.STD),
    ),
)
