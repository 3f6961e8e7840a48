"""HunyuanVideo: double and single blocks; a mask covers both streams, the clip first."""

from __future__ import annotations

from typing import Final

from stagemesh.models._diffusers.plans.rules import (
    added_attention,
    attention,
    feed_forward,
    head_counts,
    network,
)
from stagemesh.spec.cost import Part
from stagemesh.spec.model_plan import (
    AttentionSite,
    Gather,
    Guidance,
    Limit,
    ModelPlan,
    SiteRole,
    Split,
    TpRule,
    TpStyle,
)

_BLOCKS: Final = "transformer_blocks"
_SINGLE: Final = "single_transformer_blocks"
_REFINER: Final = "context_embedder.token_refiner.refiner_blocks"
_FIRST: Final = f"{_BLOCKS}.0"
_IMG: Final = ("img",)
_JOINED: Final = ("img", "txt")

PLANS: Final = (
    ModelPlan(
        name="HunyuanVideoTransformer3DModel",
        library="diffusers",
        family="hunyuan_video",
        streams=("img", "txt"),
        splits=(
            Split(module=_FIRST, value="hidden_states", dim=1, streams=_IMG, rank=3),
            Split(module=_FIRST, value="encoder_hidden_states", dim=1, streams=("txt",), rank=3),
            *(
                Split(module=f"{blocks}.*", value="attention_mask", dim=3, streams=_JOINED, rank=4)
                for blocks in (_BLOCKS, _SINGLE)
            ),
            Split(module="rope", value=0, dim=0, streams=_IMG, rank=2),
            Split(module="rope", value=1, dim=0, streams=_IMG, rank=2),
        ),
        gathers=(Gather(module="proj_out", dim=1, streams=_IMG, rank=3),),
        sites=(
            *(
                AttentionSite(
                    module=f"{blocks}.*.attn", role=SiteRole.SELF, streams=_JOINED, masked=True
                )
                for blocks in (_BLOCKS, _SINGLE)
            ),
            AttentionSite(module=f"{_REFINER}.*.attn", role=SiteRole.LOCAL),
        ),
        tp=(
            *attention(f"{_BLOCKS}.*", "attn"),
            *added_attention(f"{_BLOCKS}.*", "attn"),
            *network(f"{_BLOCKS}.*", "ff"),
            *network(f"{_BLOCKS}.*", "ff_context"),
            *attention(f"{_SINGLE}.*", "attn", exit_name=None),
            TpRule(module=f"{_SINGLE}.*.proj_mlp", style=TpStyle.COLUMN),
            TpRule(
                module=f"{_SINGLE}.*.proj_out",
                style=TpStyle.ROW,
                blocks=("attn.inner_dim", "proj_mlp.out_features"),
                pieces="attn.heads",
            ),
            *attention(f"{_REFINER}.*", "attn"),
            *feed_forward(f"{_REFINER}.*", ("ff.net.0.proj",), "ff.net.2"),
        ),
        attributes=head_counts(f"{_BLOCKS}.*.attn", f"{_SINGLE}.*.attn", f"{_REFINER}.*.attn"),
        blocks=(_BLOCKS, _SINGLE),
        guidance=Guidance(),
        limits=(
            Limit(
                key="image_condition_type",
                value="token_replace",
                part=Part.TOKENS,
                reason="its blocks count the tokens of the first frame from the front",
            ),
        ),
    ),
)
