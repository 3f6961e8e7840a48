"""What an axis is for a plan: where it fits, what it does to the world, what it allows.

An axis is one file in `axes/` that exports `AXIS`. The planner knows no axis by name: it asks the
declaration. Ranks are numbered with the axis of the lowest `mesh_position` slowest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import Enum
from typing import Final, TypeAlias

from stagemesh.spec.cost import Cost, CostView, Cuts, cuts
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.frozen import frozen
from stagemesh.spec.hooks import Binding, KernelSpec, LayerHookSpec
from stagemesh.spec.patterns import Aggregation, Policy, Routing
from stagemesh.spec.pipeline import ExecutionType, NoOptions


class WorldRole(Enum):
    """What an axis does to the ranks of a stage."""

    MULTIPLIES_RANKS = "multiplies_ranks"
    """The world is the product of these axes."""
    REUSES_RANKS = "reuses_ranks"
    """It lies over ranks that other axes brought."""
    MULTIPLIES_REPLICAS = "multiplies_replicas"
    """It copies the whole stage onto further devices."""
    NO_RANKS = "no_ranks"
    """It is about requests, not ranks."""


class Owner(Enum):
    """Who carries out the routing of an axis."""

    ENGINE = "engine"
    """The engine, inside one replica."""
    DELEGATED = "delegated"
    """The runtime, across replicas."""


@frozen
class Finding:
    """What an axis has against a layout; the planner adds the places."""

    code: str
    """Stable code of the diagnostic."""
    message: str
    """What is wrong, with got and allowed values."""
    help: str | None = None
    """What to write instead."""
    axes: tuple[str, ...] = ()
    """Other axes whose values matter; the planner points to where they were set."""
    field: str | None = None
    """Stage field at fault, for findings of an engine; the planner points to where it was set."""
    option: str | None = None
    """Option of the axis at fault; the planner points to where it was set."""


@frozen
class Said:
    """What was said about one axis of a stage, before the rest of the layout is looked at."""

    stage: str
    """Name of the stage."""
    size: int | None
    """Its degree, or `None` when only a flag or an option was given."""
    routing: Routing
    """Its routing, the policy chosen."""
    options: object
    """An instance of its `options` type."""
    ranks: int
    """Ranks that the other axes bring."""


Settle: TypeAlias = Callable[[Said], Said | Finding]
"""Fills in what follows from the rest: a size, an option; or says why nothing does."""


def _as_said(said: Said) -> Said | Finding:
    return said


@frozen
class StackView:
    """The effective layout of one stage, as an axis sees it while it checks."""

    stage: str
    """Name of the stage."""
    execution_type: ExecutionType
    """How the stage computes."""
    sizes: Mapping[str, int]
    """Size of every declared axis."""
    routing: Routing
    """Routing of the axis that is asked, its policy chosen."""
    options: object
    """Options of the axis that is asked: an instance of its `options` type."""
    facts: StageFacts
    """What the checkpoint says."""
    world: int
    """Ranks of one replica."""
    weight_folders: tuple[str, ...] = ()
    """Folders of the checkpoint that make up the stage; empty when nothing says which."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the options of the axis that is asked are called where it was written."""
    skip: Callable[[str], None]
    """Call with a sentence when a check cannot be made because a fact is missing."""

    def name(self, option: str) -> str:
        """What an option is called where the axis was written: a stage field, or its own name."""
        return self.names.get(option, option)

    def size(self, axis: str) -> int:
        """Size of an axis; 1 when it is not declared."""
        return self.sizes.get(axis, 1)


Check: TypeAlias = Callable[[StackView], Iterable[Finding]]
"""A rule of an axis over the whole layout of a stage."""


def _no_findings(_view: StackView) -> Iterable[Finding]:
    return ()


NeededFields: TypeAlias = Callable[[int, object], Mapping[str, object]]
"""Stage fields that an axis of this size and these options needs, each with its one value."""


def _no_fields(_size: int, _options: object) -> Mapping[str, object]:
    return {}


Possible: TypeAlias = Callable[[StageFacts], bool]
"""Whether a network can have the axis at all, whatever its size; an unknown fact is no reason."""


def _always(_facts: StageFacts) -> bool:
    return True


CostModel: TypeAlias = Callable[[CostView], Cost | None]
"""Counts what an axis sends and needs; `None` when a fact is missing."""


_NOTHING: Final[Cuts] = cuts()


ENABLED: Final = "enabled"
"""Member of an axis that a boolean stage field switches on or off."""
SIZE: Final = "size"
"""Member of an axis that holds its degree."""


@frozen
class DeployField:
    """A stage field that says something about an axis, as an entry of a strategy would."""

    name: str
    """The field, such as `tensor_parallel_size`."""
    member: str = SIZE
    """What it sets: `SIZE`, `ENABLED`, or the name of one of the axis' options."""
    implies: Mapping[str, object] = field(default_factory=dict)
    """For one of several forms of a size: the options that tell it from the others."""
    pipeline_wide: bool = False
    """Whether the root of a deploy file may give it for every stage that it fits."""
    fits: frozenset[ExecutionType] | None = None
    """Kinds of stage that a value for every stage reaches; those of the axis where it is `None`."""


@frozen
class Axis:
    """The declaration of one axis."""

    name: str
    """Name in strategy files; the file's name."""
    summary: str
    """One line for listings."""
    fits: frozenset[ExecutionType]
    """Stage kinds that it fits."""
    role: WorldRole
    """What it does to the ranks."""
    routing: Routing
    """L1: the default routing."""
    aggregation: Aggregation
    """L1: the aggregation."""
    owner: Owner
    """Who carries the routing out."""
    policies: tuple[Policy, ...] = ()
    """Policies that `routing:` may name; empty when the routing is fixed."""
    mesh_position: int | None = None
    """Order of the ranks, slow to fast, for axes that multiply ranks."""
    deploy_fields: tuple[DeployField, ...] = ()
    """Stage fields of deploy files and flags that set the same values; the first is the chief."""
    size_from: Mapping[ExecutionType, tuple[str, ...]] = field(default_factory=dict)
    """Axes whose product must equal the size, by stage kind; empty when the size is free."""
    overlay: tuple[str, ...] | None = None
    """For axes that reuse ranks: the axes whose groups are united; `None` is a prefix of all."""
    supplies_world: bool = False
    """Whether it brings the ranks itself when no other axis does."""
    excludes: Mapping[str, str] = field(default_factory=dict)
    """Axes it cannot be stacked with, each with the reason."""
    excludes_fields: Mapping[str, str] = field(default_factory=dict)
    """Stage fields that cannot be given beside it, each with the reason."""
    serves_fields: frozenset[str] = frozenset()
    """Stage fields that mean something only beside it, or beside another axis that says so."""
    is_possible: Possible = _always
    """Whether a stage of a kind that it fits can have it; if not, its rule says so."""
    needs_fields: NeededFields = _no_fields
    """Stage fields that it switches on."""
    options: type = NoOptions
    """Dataclass of further keys that an entry of this axis may have."""
    acts_alone: frozenset[str] = frozenset()
    """Options that mean something even where the size is 1."""
    sharing: frozenset[str] = frozenset()
    """Options that are numbers of ranks of the stage, which share a part to save memory."""
    about_size: frozenset[str] = frozenset()
    """Options about the size itself: it is made of them, or they are checked against it."""
    settle: Settle = _as_said
    """Fills in what was left out; a size that is still missing is 1."""
    needs: tuple[str, ...] = ()
    """What its rule asks for, a sentence each, for `explain`."""
    check: Check = _no_findings
    """Its rule over the effective layout."""
    cuts: Cuts = _NOTHING
    """What it cuts into pieces."""
    cost: CostModel | None = None
    """What its ranks send and need when it is larger than 1; `None` for nothing."""
    layer_hook_specs: tuple[LayerHookSpec, ...] = ()
    """L2: hooks it binds onto layers."""
    kernel_specs: tuple[KernelSpec, ...] = ()
    """L3: kernels it binds onto layers."""

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """L2 and L3: all that it binds onto layers."""
        return (*self.layer_hook_specs, *self.kernel_specs)

    @property
    def switch(self) -> str | None:
        """The stage field that switches it on, for an axis that is off without it."""
        return self.field_for(ENABLED)

    def field_for(self, member: str) -> str | None:
        """Return the stage field that sets a member: `SIZE`, `ENABLED` or an option."""
        return next((sets.name for sets in self.deploy_fields if sets.member == member), None)
