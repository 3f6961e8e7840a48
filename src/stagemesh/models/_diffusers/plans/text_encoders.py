"""Text encoders: T5, UMT5, CLIP, and decoders of `transformers` that read prompts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from stagemesh.models._diffusers.plans.imported import imported
from stagemesh.spec.model_plan import (
    AttentionSite,
    HeadAttribute,
    HeadTable,
    ModelPlan,
    SiteRole,
    TpRule,
    TpStyle,
)

_FAMILY: Final = "text_encoders"


def _t5(name: str, biased: str) -> ModelPlan:
    """T5 as `transformers` has it; `biased` are the blocks with a table of relative positions."""
    block = "encoder.block.*"
    own, inner = "layer.0.SelfAttention", "layer.1.DenseReluDense"
    heads = f"{own}.n_heads"
    return ModelPlan(
        name=name,
        library="transformers",
        family=_FAMILY,
        sites=(AttentionSite(module=f"{block}.{own}", role=SiteRole.LOCAL),),
        tp=(
            *(
                TpRule(module=f"{block}.{own}.{part}", style=TpStyle.COLUMN, pieces=heads)
                for part in ("q", "k", "v")
            ),
            TpRule(module=f"{block}.{own}.o", style=TpStyle.ROW, pieces=heads),
            # the first T5 has one entry to its feed-forward blocks, later ones have two
            *(
                TpRule(
                    module=f"{block}.{inner}.{part}",
                    style=TpStyle.COLUMN,
                    uneven=True,
                    optional=True,
                )
                for part in ("wi", "wi_0", "wi_1")
            ),
            TpRule(module=f"{block}.{inner}.wo", style=TpStyle.ROW, uneven=True),
        ),
        attributes=(HeadAttribute(module=f"{block}.{own}", name="n_heads"),),
        tables=(
            HeadTable(
                module=f"{biased}.{own}.relative_attention_bias",
                value="weight",
                dim=1,
                pieces=heads if biased.endswith("*") else f"{biased}.{heads}",
            ),
        ),
        blocks=("encoder.block",),
    )


def _clip(name: str, prefix: str) -> ModelPlan:
    """The text half of CLIP; with a projection at its exit it lies one module deeper."""
    layer = f"{prefix}encoder.layers.*"
    heads = "self_attn.num_heads"
    return ModelPlan(
        name=name,
        library="transformers",
        family=_FAMILY,
        sites=(AttentionSite(module=f"{layer}.self_attn", role=SiteRole.LOCAL),),
        tp=(
            *(
                TpRule(module=f"{layer}.self_attn.{part}", style=TpStyle.COLUMN, pieces=heads)
                for part in ("q_proj", "k_proj", "v_proj")
            ),
            TpRule(module=f"{layer}.self_attn.out_proj", style=TpStyle.ROW, pieces=heads),
            TpRule(module=f"{layer}.mlp.fc1", style=TpStyle.COLUMN, uneven=True),
            TpRule(module=f"{layer}.mlp.fc2", style=TpStyle.ROW, uneven=True),
        ),
        attributes=(HeadAttribute(module=f"{layer}.self_attn", name="num_heads"),),
        blocks=(f"{prefix}encoder.layers",),
    )


_QUERIES: Final = "self_attn.config.num_attention_heads"
_KEYS: Final = "self_attn.config.num_key_value_heads"
"""The configuration keeps the numbers of the whole network, whatever a rank has."""


def _decoder(name: str, prefix: str) -> ModelPlan:
    """A decoder with rotary positions and gated blocks, whose rules `transformers` declares."""
    layers = f"{prefix}layers"
    return ModelPlan(
        name=name,
        library="transformers",
        family=_FAMILY,
        sites=(AttentionSite(module=f"{layers}.*.self_attn", role=SiteRole.LOCAL),),
        tp=tuple(_decoder_rules(imported(name).tp)),
        attributes=(
            HeadAttribute(
                module=f"{layers}.*.self_attn",
                name="num_key_value_groups",
                ratio=("config.num_attention_heads", "config.num_key_value_heads"),
            ),
        ),
        blocks=(layers,),
    )


def _decoder_rules(rules: tuple[TpRule, ...]) -> Iterator[TpRule]:
    for rule in rules:
        name = rule.module.rpartition(".")[2]
        if name in ("k_proj", "v_proj"):
            yield replace(rule, pieces=_KEYS, copies=True)
        elif name in ("q_proj", "o_proj"):
            yield replace(rule, pieces=_QUERIES)
        else:
            yield replace(rule, uneven=True)


PLANS: Final = (
    _t5("T5EncoderModel", "encoder.block.0"),
    _t5("UMT5EncoderModel", "encoder.block.*"),
    _clip("CLIPTextModel", ""),
    _clip("CLIPTextModelWithProjection", "text_model."),
    _decoder("Qwen2_5_VLForConditionalGeneration", "model.language_model."),
    _decoder("Mistral3ForConditionalGeneration", "model.language_model."),
    _decoder("Qwen3Model", ""),
    _decoder("LlamaModel", ""),
)
