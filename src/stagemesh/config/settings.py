"""The merged configuration: what was said, by whom, and what it replaced. Input of the planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Generic, TypeVar

from stagemesh.config.place import Place
from stagemesh.config.tree import Path
from stagemesh.spec.axis import Owner
from stagemesh.spec.frozen import frozen
from stagemesh.spec.hooks import KernelSpec, LayerHookSpec
from stagemesh.spec.origin import Origin
from stagemesh.spec.patterns import Policy

Value = TypeVar("Value")


@frozen
class Sourced(Generic[Value]):
    """A value and where it came from; equality looks at the value alone."""

    value: Value
    """The value that holds."""
    origin: Origin = field(compare=False)
    """Where it was written."""
    superseded: tuple[Sourced[Value], ...] = field(default=(), compare=False)
    """Values of lower layers that it replaced, highest first."""
    parts: Mapping[str | int, Sourced[object]] = field(default_factory=dict, compare=False)
    """For a mapping, which is merged by key: each member with its own origin."""
    clears: bool = field(default=False, compare=False)
    """Whether it is a `null` that takes back what lower layers say, and is no value itself."""
    inside: Place | None = field(default=None, compare=False, repr=False)
    """For a list, which is replaced as a whole: the place that its items are told from."""

    def at(self, *path: str | int) -> Origin:
        """Return where the member at `path` was written, or else the nearest thing around it."""
        given: Sourced[Any] = self
        for depth, key in enumerate(path):
            part = given.parts.get(key)
            if part is None:
                return given.origin if given.inside is None else given.inside.below(path[depth:])
            given = part
        return given.origin


@frozen
class Within:
    """Tells the places of the members of a value, however many layers they came from."""

    given: Sourced[Any]
    """The value."""

    def origin(self, path: Path) -> Origin:
        """Return the place of the member at `path`."""
        return self.given.at(*path)

    def key_origin(self, path: Path) -> Origin:
        """Return the place of the value: a key has no other once merged."""
        return self.given.at(*path)


@frozen
class AxisSettings:
    """One axis of one stage."""

    axis: str
    """Name of the axis."""
    size: Sourced[int] | None
    """Its degree; `None` when a deploy flag switched it on and the size follows from others."""
    routing: Sourced[Policy] | None = None
    """The policy, when one was given."""
    owner: Sourced[Owner] | None = None
    """Who carries the routing out, when it was given."""
    label: str = ""
    """The entry's `name`, or the name of the axis."""
    options: Mapping[str, Sourced[object]] = field(default_factory=dict)
    """Further keys of the entry."""
    layer_hook_specs: Sourced[tuple[LayerHookSpec, ...]] | None = None
    """Hooks that the entry binds besides those of the axis."""
    kernel_specs: Sourced[tuple[KernelSpec, ...]] | None = None
    """Kernels that the entry binds besides those of the axis."""
    origin: Origin = field(compare=False)
    """Where the axis was declared."""


@frozen
class StageSettings:
    """Everything that was said about one stage."""

    stage_id: int
    """Its number in the pipeline."""
    name: str
    """Its name in the pipeline."""
    axes: Mapping[str, AxisSettings]
    """Axes by name, from every layer together."""
    fields: Mapping[str, Sourced[object]]
    """All other stage fields that were given, by field name, already of the field's type."""
    cleared: Mapping[str, Sourced[object]] = field(default_factory=dict, compare=False)
    """Every `null` that took something back and holds, by the path that a plan gives the value."""


@frozen
class ConnectorSettings:
    """One named connector of the deploy file."""

    name: str
    """The name that stages refer to."""
    connector: str
    """File name of the connector's plug-in."""
    options: object
    """An instance of the connector's `options` type."""
    edge_options: Mapping[str, Sourced[object]] = field(default_factory=dict)
    """Options of the model for the edges that it carries, by name."""
    given: Mapping[str | int, Sourced[object]] = field(default_factory=dict, compare=False)
    """Everything that its entry says, by key, for the record of where values came from."""
    origin: Origin = field(compare=False)
    """Where it was declared."""


@frozen
class EdgeSettings:
    """What was said about one edge; `None` is nothing."""

    source: int
    """Stage that produces."""
    target: int
    """Stage that consumes."""
    connector: str | None
    """Name of the connector that carries it."""
    window_size: int | None
    """Outputs of one request that are handed over together; `-1` for all of them."""
    max_inflight: int | None
    """Most requests that are on it at a time."""
    origin: Origin = field(compare=False)
    """Where the entry stands."""
    places: Mapping[str, Origin] = field(default_factory=dict, compare=False)
    """Where each of its values stands, by key."""

    def place(self, key: str) -> Origin:
        """Return where a value stands, or else the entry."""
        return self.places.get(key, self.origin)

    @property
    def entry(self) -> Mapping[str, object]:
        """The entry as a file would say it."""
        settings = {
            "connector": self.connector,
            "window_size": self.window_size,
            "max_inflight": self.max_inflight,
        }
        given = {name: value for name, value in settings.items() if value is not None}
        return {"from": self.source, "to": self.target, **given}


@frozen
class Settings:
    """The whole merged configuration of one pipeline."""

    fields: Mapping[str, Sourced[object]]
    """Pipeline-wide fields that were given, such as `async_chunk`."""
    connectors: Mapping[str, ConnectorSettings]
    """Named connectors."""
    stages: tuple[StageSettings, ...]
    """One entry for every stage of the pipeline, by ascending id."""
    edges: tuple[EdgeSettings, ...] = ()
    """What was said about edges."""
    launch: Mapping[str, Sourced[object]] = field(default_factory=dict)
    """Launch options that were given, by name, each of its type."""
    cleared: Mapping[str, Sourced[object]] = field(default_factory=dict, compare=False)
    """Every `null` that holds for the whole pipeline, by path."""
