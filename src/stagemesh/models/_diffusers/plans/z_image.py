"""Z-Image: one sequence of everything, made inside of `forward` after each kind was refined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stagemesh.models._diffusers.plans.rules import attention, feed_forward, head_counts
from stagemesh.spec.model_plan import (
    AttentionSite,
    Formula,
    Gather,
    Guidance,
    ModelPlan,
    Normalise,
    SiteRole,
    Split,
    TpRule,
)

_ALL: Final = ("all",)
"""The one stream: the picture, the prompt and what else there is, each padded."""
_LAYER: Final = "layers.*"
_FINAL: Final = "all_final_layer.*"
_REFINERS: Final = ("noise_refiner", "context_refiner")
_PICTURES: Final = "siglip_refiner"
"""Refines pictures of the request, where the network takes some."""


def _rules(block: str, *, optional: bool = False) -> Iterator[TpRule]:
    yield from attention(block, "attention", optional=optional)
    entries = ("feed_forward.w1", "feed_forward.w3")
    yield from feed_forward(block, entries, "feed_forward.w2", optional=optional)


def _local(blocks: str, *, optional: bool = False) -> AttentionSite:
    return AttentionSite(module=f"{blocks}.*.attention", role=SiteRole.LOCAL, optional=optional)


PLANS: Final = (
    ModelPlan(
        name="ZImageTransformer2DModel",
        library="diffusers",
        family="z_image",
        streams=_ALL,
        splits=(
            Split(module="layers.0", value="x", dim=1, streams=_ALL, rank=3),
            Split(module=_LAYER, value="freqs_cis", dim=1, streams=_ALL, rank=3),
            Split(module=_LAYER, value="attn_mask", dim=1, streams=_ALL, rank=2, optional=True),
            Split(module=_LAYER, value="noise_mask", dim=1, streams=_ALL, rank=2, optional=True),
            Split(module=_FINAL, value="noise_mask", dim=1, streams=_ALL, rank=2, optional=True),
        ),
        gathers=(Gather(module=_FINAL, dim=1, streams=_ALL, rank=3),),
        sites=(
            AttentionSite(
                module=f"{_LAYER}.attention", role=SiteRole.SELF, streams=_ALL, masked=True
            ),
            *(_local(blocks) for blocks in _REFINERS),
            _local(_PICTURES, optional=True),
        ),
        tp=(
            *_rules(_LAYER),
            *(rule for blocks in _REFINERS for rule in _rules(f"{blocks}.*")),
            *_rules(f"{_PICTURES}.*", optional=True),
        ),
        attributes=(
            *head_counts(f"{_LAYER}.attention", *(f"{blocks}.*.attention" for blocks in _REFINERS)),
            *head_counts(f"{_PICTURES}.*.attention", optional=True),
        ),
        blocks=("layers", *_REFINERS),
        guidance=Guidance(combine=Formula.FROM_POSITIVE, normalise=Normalise.CLAMP),
    ),
)
