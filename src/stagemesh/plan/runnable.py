"""Why a valid plan cannot be run yet. An empty answer means that it can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stagemesh.plan.devices import Devices
from stagemesh.plan.stage import StageDraft
from stagemesh.spec.axis import WorldRole
from stagemesh.spec.pipeline import PipelineConfig


def reasons(
    pipeline: PipelineConfig, drafts: Sequence[StageDraft], devices: Devices
) -> tuple[str, ...]:
    """Return a sentence for everything that nothing executes yet."""
    found = [] if pipeline.planning_only is None else [pipeline.planning_only]
    for draft in drafts:
        found += _of_stage(draft)
    if pipeline.planning_only is None:
        found += [reason for draft in drafts for reason in _without_weights(draft)]
    if devices.imaginary:
        found.append(f"the `{devices.kind}` devices are imaginary")
    return tuple(found)


def _without_weights(draft: StageDraft) -> Iterator[str]:
    spec, stage = draft.choice.spec, draft.stage
    if spec is not None and spec.needs_weights and draft.stack.facts.weight_bytes is None:
        yield f"`{stage.model_stage}`: the checkpoint has no weights in `{stage.model_subdir}`"


def _of_stage(draft: StageDraft) -> Iterator[str]:
    name, spec = draft.stage.model_stage, draft.choice.spec
    if spec is None:
        yield f"`{name}`: no engine runs `{draft.stage.execution_type.value}` stages yet"
        return
    if spec.planning_only is not None:
        yield f"`{name}`: {spec.planning_only}"
    for field in draft.choice.stage_args:
        yield f"`{name}`: engine `{spec.name}` does not act on `{field}` yet"
    for item in draft.stack.axes:
        axis = item.axis
        if axis.role is WorldRole.NO_RANKS:
            yield f"`{name}`: the runtime does not execute `{axis.name}` yet"
        elif (
            item.size > 1
            and axis.role is not WorldRole.MULTIPLIES_REPLICAS
            and axis.name not in spec.executes
        ):
            yield f"`{name}`: engine `{spec.name}` does not execute `{axis.name}` yet"
