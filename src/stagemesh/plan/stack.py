"""The axes of one stage, resolved: declaration, effective size and options, in mesh order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field, fields, replace

from stagemesh.config.settings import AxisSettings, Sourced, StageSettings
from stagemesh.plan.world import Mesh, mesh_of, mesh_order, replica_count, world_size
from stagemesh.spec.axis import Axis, Finding, Said, WorldRole
from stagemesh.spec.diagnostic import Note
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.frozen import frozen
from stagemesh.spec.hooks import Binding
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.patterns import Policy, RouteByStage, Routing
from stagemesh.spec.pipeline import StagePipelineConfig


@frozen
class StackedAxis:
    """One declared axis of a stage."""

    axis: Axis
    """Its declaration."""
    settings: AxisSettings
    """What was said about it."""
    size: int
    """Its effective size."""
    options: object
    """An instance of the declaration's `options`, filled in."""
    unsettled: Finding | None = None
    """Why its size or an option does not follow from what was said."""

    @property
    def origin(self) -> Origin:
        """Where its size was written, or else where it was declared."""
        size = self.settings.size
        return self.settings.origin if size is None else size.origin

    @property
    def set_here(self) -> Note:
        """What says where it has its size from."""
        return Note(message=f"`{self.axis.name}` = `{self.size}` is set here", origin=self.origin)

    @property
    def given_bindings(self) -> tuple[Binding, ...]:
        """Hooks and kernels that its entry asks for."""
        hooks, kernels = self.settings.layer_hook_specs, self.settings.kernel_specs
        return (*(hooks.value if hooks else ()), *(kernels.value if kernels else ()))

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """Hooks and kernels that it binds: its own when it is above 1, and those asked for."""
        return (*(self.axis.bindings if self.size > 1 else ()), *self.given_bindings)

    @property
    def is_asked_for(self) -> bool:
        """Whether it asks for anything: it is larger than 1, or has an option that acts alone."""
        alone = (item for item in fields(self.axis.options) if item.name in self.axis.acts_alone)
        given = self.settings.options
        return self.size > 1 or any(
            item.name in given and given[item.name].value != item.default for item in alone
        )

    @property
    def names(self) -> Mapping[str, str]:
        """What each of its options is called in the place that gives it, or that gives the axis."""
        return {item.name: self._name(item.name) for item in fields(self.axis.options)}

    def _name(self, option: str) -> str:
        """A stage field names an option unless a strategy does, which has the option's own name."""
        given = self.settings.options.get(option)
        written = self.settings.origin if given is None else given.origin
        if written.layer is Layer.STRATEGY:
            return option
        return self.axis.field_for(option) or option

    @property
    def routing(self) -> Routing:
        """Its routing with the policy that was given."""
        return routing_of(self.axis, self.settings)

    @property
    def needed_fields(self) -> Mapping[str, Sourced[object]]:
        """Stage fields that it switches on, as if they were written where its size is."""
        needed = self.axis.needs_fields(self.size, self.options)
        return {name: Sourced(value=value, origin=self.origin) for name, value in needed.items()}


@frozen
class Stack:
    """All axes of one stage."""

    stage: StagePipelineConfig
    """The stage."""
    facts: StageFacts
    """What the checkpoint says about it."""
    axes: tuple[StackedAxis, ...]
    """Its axes: mesh order, then the others by name."""
    fields: Mapping[str, Sourced[object]] = field(default_factory=dict)
    """The other fields of the stage that were given."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Size of every declared axis."""
        return {item.axis.name: item.size for item in self.axes}

    def fits(self, item: StackedAxis) -> bool:
        """Whether the stage can have one of its axes, by its kind and its declaration."""
        stage = self.stage
        return stage.execution_type in item.axis.fits and item.axis.name not in stage.excludes

    @property
    def all_fields(self) -> Mapping[str, Sourced[object]]:
        """The given fields, and those that the axes switch on which the stage can have."""
        needed = {
            name: value
            for item in self.axes
            if self.fits(item)
            for name, value in item.needed_fields.items()
            if name not in self.fields or self.fields[name].value is None
        }
        return {**self.fields, **needed}

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
    def factors(self) -> tuple[StackedAxis, ...]:
        """Axes above 1 whose product that is."""
        mesh = dict(self.mesh)
        return tuple(item for item in self.axes if item.size > 1 and item.axis.name in mesh)

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
    given = {item.axis: item.size.value for item in ordered if item.size is not None}
    bringing = {
        name: size
        for name, size in given.items()
        if declarations[name].role is WorldRole.MULTIPLIES_RANKS
    }
    axes = []
    for item in ordered:
        axis = declarations[item.axis]
        said = Said(
            stage=stage.model_stage,
            size=given.get(axis.name, implied_size(axis, stage, given)),
            routing=routing_of(axis, item),
            options=_options(item, axis),
            ranks=math.prod(size for name, size in bringing.items() if name != axis.name),
        )
        axes.append(_stacked(axis, item, said))
    return Stack(stage=stage, facts=facts, axes=tuple(axes), fields=settings.fields)


def _stacked(axis: Axis, settings: AxisSettings, said: Said) -> StackedAxis:
    settled = axis.settle(said)
    kept = said if isinstance(settled, Finding) else settled
    return StackedAxis(
        axis=axis,
        settings=settings,
        size=1 if kept.size is None else kept.size,
        options=kept.options,
        unsettled=settled if isinstance(settled, Finding) else None,
    )


def routing_of(axis: Axis, settings: AxisSettings) -> Routing:
    """Return the routing of an axis with the policy that was given."""
    routing, given = axis.routing, settings.routing
    if given is None or not isinstance(routing, RouteByStage):
        return routing
    return replace(routing, policy=given.value)


def implied_size(axis: Axis, stage: StagePipelineConfig, sizes: Mapping[str, int]) -> int | None:
    """Size that follows from other axes, or `None` when the size is free."""
    factors = axis.size_from.get(stage.execution_type)
    return None if factors is None else math.prod(sizes.get(name, 1) for name in factors)


def _options(given: AxisSettings, axis: Axis) -> object:
    return axis.options(**{name: sourced.value for name, sourced in given.options.items()})


def size_notes(stack: Stack) -> Iterator[Note]:
    """Say where each factor of the ranks and the number of copies was set, and the product."""
    copies = (item for item in stack.axes if item.axis.role is WorldRole.MULTIPLIES_REPLICAS)
    counted = (*stack.factors, *(item for item in copies if item.size > 1))
    yield from (item.set_here for item in stack.axes if item in counted)
    if len(stack.factors) > 1:
        product = " x ".join(f"`{item.axis.name}`" for item in stack.factors)
        yield Note(message=f"{product} = `{stack.world}` ranks")
