"""Random layouts of one stage, written as entries of a strategy and as fields of a stage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeAlias, cast

from hypothesis import strategies as st

from stagemesh.config.document import Document, Findings, Source, read_mapping
from stagemesh.config.fields import stage_fields
from stagemesh.config.overrides import read_overrides
from stagemesh.config.patch import Patch
from stagemesh.config.place import Run
from stagemesh.config.scope import Scope
from stagemesh.config.stages import Stages
from stagemesh.config.strategy import read_strategy
from stagemesh.plan.alone import one_stage, plan_alone
from stagemesh.plan.build import PlanResult
from stagemesh.plan.values import Plan
from stagemesh.spec.axis import ENABLED, SIZE, Axis, DeployField, WorldRole
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.origin import Layer
from stagemesh.spec.patterns import Policy
from stagemesh.spec.pipeline import ExecutionType
from stagemesh.spec.registry import AXES
from tests.plan.making import catalog

Entry: TypeAlias = Mapping[str, Any]
"""One entry of a stack."""

AXIS: Final = {axis.name: axis for axis in AXES.declarations()}
FACTS: Final = StageFacts(num_experts=6**5, guidance=True)
"""Enough experts for any product of small sizes."""
_CATALOG: Final = catalog()
_FIELDS: Final = stage_fields(_CATALOG)
_OPTIONS: Final[Mapping[str, st.SearchStrategy[dict[str, object]]]] = {
    "sp_ulysses": st.sampled_from(
        [{}, {"mode": "strict"}, {"mode": "strict", "a2a_permute": True}]
    ),
    "sp_ring": st.sampled_from([{}, {"exchange": "allgather"}]),
    "cfg": st.sampled_from([{}, {"branches": 3}]),
    "vae_pp": st.sampled_from([{}, {"mode": "spatial_shard_width"}]),
    "stage_pp": st.sampled_from([{}, {"unit": "chunks"}]),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The axes of one stage."""

    kind: ExecutionType
    """Its kind."""
    stack: tuple[Entry, ...]
    """Its entries."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Size of every axis."""
        return {entry["axis"]: entry["size"] for entry in self.stack}

    @property
    def world_axes(self) -> list[str]:
        """Axes that multiply ranks."""
        return [name for name in self.sizes if AXIS[name].role is WorldRole.MULTIPLIES_RANKS]


@st.composite
def layouts(draw: st.DrawFn, *, in_fields: bool = False) -> Layout:
    """Draw a valid layout: free sizes first, then those that follow from them.

    With `in_fields`, one that fields of a stage can say as well.
    """
    kind = draw(st.sampled_from([ExecutionType.LLM_AR, ExecutionType.DIFFUSION]))
    fitting = [axis for axis in AXIS.values() if kind in axis.fits]
    if in_fields:
        fitting = [axis for axis in fitting if axis.deploy_fields]
    free = [axis for axis in fitting if axis.role is not WorldRole.REUSES_RANKS]
    chosen = draw(st.lists(st.sampled_from(free), unique_by=lambda axis: axis.name, max_size=5))
    least = 2 if in_fields else 1  # a form of degree 1 says nothing
    stack = [_entry(draw, axis, draw(st.integers(least, 3)), in_fields) for axis in chosen]
    world = math.prod(
        entry["size"] for entry in stack if AXIS[entry["axis"]].role is WorldRole.MULTIPLIES_RANKS
    )
    sizes = {entry["axis"]: entry["size"] for entry in stack}
    for axis in fitting:
        if axis.role is not WorldRole.REUSES_RANKS or not draw(st.booleans()):
            continue
        if any(min(world, sizes.get(name, 1)) > 1 for name in axis.excludes):
            continue
        factors = axis.size_from.get(kind)
        if factors is not None:
            size = math.prod(sizes.get(name, 1) for name in factors)
        elif axis.supplies_world:
            size = world = world if world > 1 else draw(st.integers(1, 6))
        else:
            size = draw(st.integers(1, world))
        stack.append(_entry(draw, axis, size, in_fields))
        sizes[axis.name] = size
    return Layout(kind=kind, stack=tuple(draw(st.permutations(stack))))


def _entry(draw: st.DrawFn, axis: Axis, size: int, in_fields: bool) -> Entry:  # noqa: FBT001
    options = draw(_OPTIONS.get(axis.name, st.just({})))
    if in_fields:
        sayable = {name for sets in axis.deploy_fields for name in (sets.member, *sets.implies)}
        options = {name: value for name, value in options.items() if name in sayable}
    if axis.supplies_world:
        replicas = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
        options = draw(st.sampled_from([{}, {"replicate": replicas}]))
    if axis.policies and not in_fields:
        policy = draw(st.sampled_from(Policy))
        options = {"routing": policy.value}
        if policy is Policy.HASH:
            options["key"] = "user"
    return {"axis": axis.name, "size": size, **options}


def as_fields(layout: Layout) -> dict[str, object]:
    """Write the layout as fields of a stage."""
    return {name: value for entry in layout.stack for name, value in _said(entry).items()}


def _said(entry: Entry) -> dict[str, object]:
    axis = AXIS[entry["axis"]]
    options = {item.name: entry.get(item.name, item.default) for item in fields(axis.options)}
    said = {
        sets.name: _value(sets, entry, options)
        for sets in axis.deploy_fields
        if all(options[name] == value for name, value in sets.implies.items())
    }
    if axis.supplies_world:  # a size has no field: it is shard x replicate
        said[cast("str", axis.field_for("shard"))] = entry["size"] // options["replicate"]
    return said


def _value(sets: DeployField, entry: Entry, options: Mapping[str, object]) -> object:
    if sets.member == SIZE:
        return entry["size"]
    return True if sets.member == ENABLED else options[sets.member]


def planned(
    kind: ExecutionType,
    *,
    stack: Sequence[Entry] | None = None,
    said: Mapping[str, object] | None = None,
) -> Plan:
    """Plan one stage under entries or under fields; it must succeed."""
    result = attempt(kind, stack=stack, said=said)
    assert result.plan is not None, result.diagnostics
    return result.plan


def attempt(
    kind: ExecutionType,
    *,
    stack: Sequence[Entry] | None = None,
    said: Mapping[str, object] | None = None,
) -> PlanResult:
    """Plan one stage under entries or under fields."""
    pipeline, run = one_stage("stage", kind), Run()
    stages, patches = Stages(pipeline=pipeline), list[Patch]()
    if stack is not None:
        document = _document({"strategies": {"stage": list(stack)}}, Layer.STRATEGY, run.findings)
        patches += read_strategy(document, stages, _CATALOG.axes, run)
    if said is not None:
        document = _document({"stage": said}, Layer.STAGE, run.findings)
        scope = Scope(stages=stages, fields=_FIELDS, catalog=_CATALOG)
        patches += read_overrides(document, scope, run)
    facts = {"stage": FACTS}
    return plan_alone(pipeline, patches, run, catalog=_CATALOG, fields=_FIELDS, facts=facts)


def _document(value: object, layer: Layer, findings: Findings) -> Document:
    document = read_mapping(value, Source(name="test", layer=layer), findings)
    assert document is not None
    return document


def without_places(plan: Plan) -> Plan:
    """Return the plan without the record of where its values came from."""
    return replace(plan, stages=tuple(replace(each, values={}) for each in plan.stages))
