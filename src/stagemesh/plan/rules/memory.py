"""Values that change what a stage holds in memory, but which no estimate counts: each is told."""

from __future__ import annotations

from typing import Final

from stagemesh.plan.rules.context import RuleContext, Ruling

_UNCOUNTED: Final = (
    "quantization",
    "hf_overrides",
    "kv_cache_dtype",
    "mamba_ssm_cache_dtype",
    "diffusion_quantization_config",
    "diffusion_kv_cache_dtype",
    "diffusion_offload_config",
    "enable_layerwise_offload",
    "enable_distributed_layerwise_offload",
)
"""Stage fields on which the memory of a stage depends, in the order in which they are told."""
_AS_IT_IS: Final[tuple[object, ...]] = (None, False, "auto", {})
"""Values that leave everything as it is."""


def memory(context: RuleContext) -> Ruling:
    """Say of which values the estimates know nothing; an engine that acts on one counts it."""
    return Ruling(
        skipped=tuple(
            f"memory of `{draft.stage.model_stage}`: the effect of `{name}` is not estimated"
            for draft in context.drafts
            if draft.memory is not None
            for name in _UNCOUNTED
            if draft.choice.stage_args.get(name) not in _AS_IT_IS
        )
    )
