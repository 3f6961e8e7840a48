"""One stage's part of the plan, put together from what was decided about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from stagemesh.config.chunks import hands_over_chunks
from stagemesh.config.plain import plain_fields
from stagemesh.config.settings import StageSettings
from stagemesh.plan.cost.estimate import StageCost
from stagemesh.plan.engine import NO_ENGINE, EngineChoice
from stagemesh.plan.groups import coordinates, groups_of
from stagemesh.plan.provenance import axis_values, cleared_of, values_of
from stagemesh.plan.setup import StageSetup
from stagemesh.plan.stack import Stack, StackedAxis
from stagemesh.plan.values import (
    AxisPlan,
    BindingPlan,
    MemoryPlan,
    PatternPlan,
    RankPlan,
    ReplicaPlan,
    StagePlan,
)
from stagemesh.plan.wish import DeviceIds
from stagemesh.plan.world import Mesh
from stagemesh.spec.engine import MemoryEstimate
from stagemesh.spec.frozen import frozen
from stagemesh.spec.hooks import Binding, HookCategory, KernelSpec, LayerHookSpec
from stagemesh.spec.patterns import Aggregation, Routing
from stagemesh.spec.pipeline import StagePipelineConfig


@frozen
class StageDraft:
    """What was decided about a stage before it has devices."""

    stage: StagePipelineConfig
    """The stage."""
    stack: Stack
    """Its axes."""
    is_sound: bool
    """Whether its ranks can be counted."""
    choice: EngineChoice
    """Its engine."""
    model_args: Mapping[str, object]
    """Its `additional_config`, defaults filled in."""
    cost: StageCost
    """What one rank of it holds and sends, as far as that can be told."""

    @property
    def stage_id(self) -> int:
        """Number of the stage."""
        return self.stage.stage_id

    @property
    def sampling(self) -> Mapping[str, object]:
        """Its default request parameters."""
        return self.choice.params

    @property
    def memory(self) -> MemoryEstimate | None:
        """Memory of one rank, when it can be estimated."""
        return self.cost.memory


def plan_stage(
    draft: StageDraft,
    settings: StageSettings,
    replicas: tuple[DeviceIds, ...],
    setup: StageSetup,
) -> StagePlan:
    """Write down one stage."""
    stage, stack = draft.stage, draft.stack
    spec = draft.choice.spec
    memory = draft.memory
    return StagePlan(
        stage_id=stage.stage_id,
        name=stage.model_stage,
        execution_type=stage.execution_type.value,
        engine=NO_ENGINE if spec is None else spec.name,
        world_size=stack.world,
        policy=stack.policy.value,
        replicas=tuple(_replica(index, ids, stack.mesh) for index, ids in enumerate(replicas)),
        axes=tuple(_axis(item, stack.mesh, draft.cost) for item in stack.axes),
        bindings=_bindings(stack),
        engine_args=plain_fields(draft.choice.args),
        stage_args=draft.choice.stage_args,
        model_args=draft.model_args,
        sampling=draft.sampling,
        env=_env(settings),
        memory=None
        if memory is None
        else MemoryPlan(
            weights=memory.weights,
            cache=memory.cache,
            workspace=memory.workspace,
            context=memory.context,
        ),
        input_sources=stage.input_sources,
        final_output_type=stage.final_output_type if stage.final_output else None,
        owns_tokenizer=stage.owns_tokenizer,
        model_subdir=stage.model_subdir,
        loader=stage.loader,
        values={
            **cleared_of(settings.cleared),
            **axis_values((item.settings for item in stack.axes), stack.sizes),
            **values_of(stack.all_fields),
        },
        async_chunk=hands_over_chunks(settings),
        setup=setup,
    )


def _env(settings: StageSettings) -> Mapping[str, str]:
    given = settings.fields.get("env")
    return {} if given is None or given.value is None else cast("Mapping[str, str]", given.value)


def _replica(index: int, ids: DeviceIds, mesh: Mesh) -> ReplicaPlan:
    points = coordinates(mesh)
    return ReplicaPlan(
        index=index,
        ranks=tuple(
            RankPlan(rank=rank, device=device, coords=coords)
            for rank, (device, coords) in enumerate(zip(ids, points, strict=True))
        ),
    )


def _axis(item: StackedAxis, mesh: Mesh, cost: StageCost) -> AxisPlan:
    axis = item.axis
    return AxisPlan(
        axis=axis.name,
        size=item.size,
        label=item.settings.label or axis.name,
        role=axis.role.value,
        groups=groups_of(axis, item.size, mesh),
        routing=_pattern(item.routing),
        aggregation=_pattern(axis.aggregation),
        owner=axis.owner.value,
        options=plain_fields(item.options),
        traffic=cost.traffic(axis.name),
    )


def _pattern(pattern: Routing | Aggregation) -> PatternPlan:
    return PatternPlan(name=type(pattern).__name__, args=plain_fields(pattern))


def _bindings(stack: Stack) -> tuple[BindingPlan, ...]:
    """Hooks and kernels of all axes larger than 1, in the order the walker binds them."""
    order = {category: number for number, category in enumerate(HookCategory)}
    bound = [
        (order[spec.category], spec.priority, item.axis.name, spec)
        for item in stack.axes
        for spec in item.bindings
    ]
    return tuple(binding_of(spec, axis) for _, _, axis, spec in sorted(bound, key=_binding_order))


def _binding_order(bound: tuple[int, int, str, Binding]) -> tuple[object, ...]:
    return bound[:3]


def binding_of(spec: Binding, axis: str) -> BindingPlan:
    """Write down one hook or kernel of an axis."""
    kernel = spec if isinstance(spec, KernelSpec) else None
    return BindingPlan(
        kind="hook" if isinstance(spec, LayerHookSpec) else "kernel",
        name=spec.hook_id if isinstance(spec, LayerHookSpec) else spec.kernel_id,
        target=spec.target,
        category=spec.category.value,
        priority=spec.priority,
        axis=axis,
        group_axis=None if kernel is None else kernel.group_axis,
        requires_collective=kernel is not None and kernel.requires_collective,
    )
