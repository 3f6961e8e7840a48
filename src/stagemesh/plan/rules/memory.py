"""Values that change what a stage holds in memory, but which no estimate counts: each is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.stage import StageDraft

_OVERRIDES: Final = "hf_overrides"
"""Field that replaces values of the configuration, after all that is checked here."""
_UNCOUNTED: Final = (
    "quantization",
    _OVERRIDES,
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
    """Say what the estimates do not know; an engine that acts on a value counts it."""
    return Ruling(skipped=tuple(_skipped(context.drafts)))


def _skipped(drafts: Sequence[StageDraft]) -> Iterator[str]:
    for draft in drafts:
        stage = draft.stage.model_stage
        if draft.memory is not None:
            for name in draft.cost.unweighed:
                yield f"memory of `{stage}`: how large `{name}` is cannot be told"
            for value in (*_own(draft), *_of_others(draft, drafts)):
                yield f"memory of `{stage}`: the effect of {value} is not estimated"
        if draft.choice.stage_args.get(_OVERRIDES) not in _AS_IT_IS:
            yield f"sizes of `{stage}`: axes are held against the checkpoint without `{_OVERRIDES}`"


def _own(draft: StageDraft) -> Iterator[str]:
    """Values of the stage itself."""
    stage_args = draft.choice.stage_args
    given = (name for name in _UNCOUNTED if stage_args.get(name) not in _AS_IT_IS)
    yield from (f"`{name}`" for name in (*draft.cost.uncounted, *given))


def _of_others(draft: StageDraft, drafts: Sequence[StageDraft]) -> Iterator[str]:
    """Sizes that are set at a stage before it, and not at this one, which gets its results."""
    spec = draft.choice.spec
    for other in drafts:
        if spec is not None and other.stage_id in draft.stage.input_sources:
            for name in sorted(spec.sized_by):
                said = other.sampling.get(name)
                if said is not None and said != draft.sampling.get(name):
                    yield f"`{name}` of `{other.stage.model_stage}`"
