"""The axes of one stage, resolved: declaration, effective size and options, in mesh order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from stagemesh.config.settings import AxisSettings, StageSettings
from stagemesh.plan.world import Mesh, mesh_of, mesh_order, replica_count, world_size
from stagemesh.spec.axis import Axis, WorldRole
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.hooks import KernelSpec, LayerHookSpec
from stagemesh.spec.origin import Origin
from stagemesh.spec.patterns import Policy, RouteByStage, Routing
from stagemesh.spec.pipeline import StagePipelineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedAxis:
    """One declared axis of a stage."""

    axis: Axis
    """Its declaration."""
    settings: AxisSettings
    """What was said about it."""
    size: int
    """Its effective size."""
    options: object
    """An instance of the declaration's `options`."""

    @property
    def origin(self) -> Origin:
        """Where its size was written, or else where it was declared."""
        size = self.settings.size
        return self.settings.origin if size is None else size.origin

    @property
    def bindings(self) -> tuple[LayerHookSpec | KernelSpec, ...]:
        """Hooks and kernels that it binds; none when it is not larger than 1."""
        if self.size == 1:
            return ()
        return (*self.axis.layer_hook_specs, *self.axis.kernel_specs)

    @property
    def routing(self) -> Routing:
        """Its routing with the policy that was given."""
        routing, given = self.axis.routing, self.settings.routing
        if given is None or not isinstance(routing, RouteByStage):
            return routing
        return replace(routing, policy=given.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """All axes of one stage."""

    stage: StagePipelineConfig
    """The stage."""
    facts: StageFacts
    """What the checkpoint says about it."""
    axes: tuple[StackedAxis, ...]
    """Its axes: mesh order, then the others by name."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Size of every declared axis."""
        return {item.axis.name: item.size for item in self.axes}

    @property
    def mesh(self) -> Mesh:
        """Axes that bring the ranks of one replica."""
        axes = (item.axis for item in self.axes)
        return mesh_of(axes, self.sizes, self.stage.rank_axis)

    @property
    def world(self) -> int:
        """Ranks of one replica."""
        return world_size(self.mesh)

    @property
    def num_replicas(self) -> int:
        """Copies of the stage."""
        return replica_count((item.axis for item in self.axes), self.sizes)

    @property
    def policy(self) -> Policy:
        """How requests are spread over the replicas."""
        routings = (
            item.routing for item in self.axes if item.axis.role is WorldRole.MULTIPLIES_REPLICAS
        )
        by_stage = (routing for routing in routings if isinstance(routing, RouteByStage))
        return next((routing.policy for routing in by_stage), Policy.ROUND_ROBIN)


def stack_of(
    stage: StagePipelineConfig,
    settings: StageSettings,
    facts: StageFacts,
    declarations: Mapping[str, Axis],
) -> Stack:
    """Resolve the axes of a stage; the order in which they were written does not matter."""
    ordered = sorted(settings.axes.values(), key=lambda given: mesh_order(declarations[given.axis]))
    return Stack(
        stage=stage,
        facts=facts,
        axes=tuple(
            StackedAxis(
                axis=declarations[given.axis],
                settings=given,
                size=_size(given, declarations[given.axis], stage, settings),
                options=_options(given, declarations[given.axis]),
            )
            for given in ordered
        ),
    )


def implied_size(axis: Axis, stage: StagePipelineConfig, sizes: Mapping[str, int]) -> int | None:
    """Size that follows from other axes, or `None` when the size is free."""
    factors = axis.size_from.get(stage.execution_type)
    return None if factors is None else math.prod(sizes.get(name, 1) for name in factors)


def _size(
    given: AxisSettings, axis: Axis, stage: StagePipelineConfig, settings: StageSettings
) -> int:
    if given.size is not None:
        return given.size.value
    sizes = {
        name: other.size.value for name, other in settings.axes.items() if other.size is not None
    }
    return implied_size(axis, stage, sizes) or 1


def _options(given: AxisSettings, axis: Axis) -> object:
    return axis.options(**{name: sourced.value for name, sourced in given.options.items()})
