"""Which declarations have a field: of deploy files, stages, axes, engines and models.

A path is what people write: `max_num_seqs`, `tp`, `sp_ulysses.mode`, `duplex_session.max_sessions`,
`default_sampling_params.temperature`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.check import Annotation, hints
from stagemesh.config.fields import StageField
from stagemesh.config.flag_rules import StartFields
from stagemesh.config.kind_fields import KIND_FIELDS
from stagemesh.config.launch import LaunchOptions
from stagemesh.config.schema import DeployFile, StageEntry, StrategyEntry
from stagemesh.plan.type_text import held_type, is_by_name, item_type
from stagemesh.spec.axis import ENABLED, SIZE, Axis, DeployField
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import ExecutionType, StagePipelineConfig
from stagemesh.spec.unset import UNSET

SAMPLING: Final = "default_sampling_params"
"""The field whose members are request parameters of engines and models."""
MODEL_ARGS: Final = "additional_config"
"""The field whose members are options of models."""


START: Final[tuple[type, ...]] = (LaunchOptions, StartFields)
"""What no file can say: it is given by flags and Python arguments alone."""


@frozen
class Declared:
    """A field of a dataclass, and whose it is."""

    owner: str
    """Who takes it, as a message says it."""
    kind: type
    """The dataclass."""
    name: str
    """The field."""
    doc: str | None = None
    """What it is, where that is not the text below the field."""
    default: object = UNSET
    """What holds when it is not given, where that is not the field's default."""

    is_member: bool = False
    """Whether a member is meant whose name anybody chooses, so that nothing is its default."""

    @property
    def annotation(self) -> Annotation:
        """Its type."""
        own = hints(self.kind)[self.name]
        return item_type(own) if self.is_member else own


def declared_at(
    parts: Sequence[str], fields: Mapping[str, StageField], catalog: Catalog
) -> list[Declared]:
    """Return every declaration of the field at a path; none when it is no field."""
    first, rest = parts[0], parts[1:]
    if first in catalog.axes:
        return list(_of_axis(catalog.axes[first], rest))
    members = {SAMPLING: _params, MODEL_ARGS: _options}.get(first)
    if members is not None and len(rest) == 1:
        return [found for found in members(catalog) if found.name == rest[0]]
    found = list(_roots(first, fields, catalog))
    while rest and found:
        if is_by_name(found[0].annotation):
            rest = rest[1:]  # any name will do
        if not rest:
            return [replace(each, default=None, is_member=True) for each in found]
        found, rest = list(_below(found, rest[0])), rest[1:]
    return found


def first_parts(fields: Mapping[str, StageField], catalog: Catalog) -> list[str]:
    """Everything that a path can begin with."""
    start = (name for kind in START for name in hints(kind))
    return sorted({*hints(DeployFile), *start, *fields, *catalog.axes})


def _roots(name: str, fields: Mapping[str, StageField], catalog: Catalog) -> Iterator[Declared]:
    if name in hints(DeployFile):
        yield Declared(owner="the deploy file", kind=DeployFile, name=name)
    for kind in START:
        if name in hints(kind):
            yield Declared(owner="the start", kind=kind, name=name)
    field = fields.get(name)
    if field is None:
        return
    if field.axis is not None and field.sets is not None:
        yield _deploy_field(field.axis, field.sets)
    owners: list[tuple[str, type]] = [("every stage", StageEntry)]
    owners += [(_of_kinds(kinds), kind) for kind, kinds in KIND_FIELDS.items()]
    owners += [(f"engine `{each.name}`", each.options) for each in catalog.engines.values()]
    for owner, kind in owners:
        if name in hints(kind):
            yield Declared(owner=owner, kind=kind, name=name)


def _of_kinds(kinds: Collection[ExecutionType]) -> str:
    if kinds == frozenset(ExecutionType):
        return "every stage"
    return f"stages of kind {', '.join(f'`{name}`' for name in sorted(k.value for k in kinds))}"


def _deploy_field(axis: Axis, sets: DeployField) -> Declared:
    """What a stage field says about an axis."""
    owner = f"axis `{axis.name}`"
    if sets.member == SIZE:
        return _size(axis)
    if sets.member == ENABLED:
        doc = f"Whether there is {axis.summary}."
        return Declared(owner=owner, kind=_Switch, name=ENABLED, doc=doc)
    return Declared(owner=owner, kind=axis.options, name=sets.member)


@frozen
class _Switch:
    """A field that switches an axis on or off."""

    enabled: bool = False
    """Whether it is on."""


def _size(axis: Axis) -> Declared:
    doc = f"Size of {axis.summary}."
    return Declared(owner=f"axis `{axis.name}`", kind=StrategyEntry, name=SIZE, doc=doc, default=1)


def _of_axis(axis: Axis, rest: Sequence[str]) -> Iterator[Declared]:
    if not rest:
        yield _size(axis)
    for kind in (StrategyEntry, axis.options):
        if len(rest) == 1 and rest[0] in hints(kind):
            yield Declared(owner=f"axis `{axis.name}`", kind=kind, name=rest[0])


def _params(catalog: Catalog) -> Iterator[Declared]:
    for engine in catalog.engines.values():
        yield from _all(f"engine `{engine.name}`", engine.params)
    for owner, stage in _stages(catalog):
        yield from _all(owner, stage.params)


def _options(catalog: Catalog) -> Iterator[Declared]:
    for owner, stage in _stages(catalog):
        yield from _all(owner, stage.options)


def _stages(catalog: Catalog) -> Iterator[tuple[str, StagePipelineConfig]]:
    for model in catalog.models:
        for stage in model.pipeline.stages:
            yield f"stage `{stage.model_stage}` of `{model.pipeline.model_type}`", stage


def _all(owner: str, kind: type) -> Iterator[Declared]:
    return (Declared(owner=owner, kind=kind, name=name) for name in hints(kind))


def _below(found: Iterable[Declared], name: str) -> Iterator[Declared]:
    for each in found:
        held = held_type(each.annotation)
        if held is not None and name in hints(held):
            yield Declared(owner=each.owner, kind=held, name=name)


def member_names(declared: Declared) -> tuple[str, ...]:
    """Names of the members of a value that is a mapping with fixed ones."""
    held = held_type(declared.annotation)
    return () if held is None else tuple(hints(held))
