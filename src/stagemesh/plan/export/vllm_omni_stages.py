"""A stage of a plan in the words of vllm-omni: its axes, its fields, and what that has no word for.

Everything that a deploy file of ours would say is taken in turn, so that a field which is added
there is written here or told, and never left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Final, cast

from stagemesh.config.catalog import Catalog, default_engine
from stagemesh.config.check import hints
from stagemesh.config.kind_fields import KIND_FIELDS, Diffusion, EveryKind, Llm
from stagemesh.config.schema import STAGE_KEY
from stagemesh.plan.engine import NO_ENGINE
from stagemesh.plan.export.dump import written
from stagemesh.plan.export.stage_fields import (
    BINDINGS,
    ROUTING,
    axis_fields,
    device_list,
    engine_defaults,
)
from stagemesh.plan.values import AxisPlan, StagePlan
from stagemesh.spec.axis import Axis, WorldRole
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import ExecutionType

SHARED: Final = (EveryKind, Llm, Diffusion)
"""Classes of stage fields that both systems have; fields of our own stand in others."""
_MAPPINGS: Final = ("env", "default_sampling_params", "additional_config")
"""Stage fields beside those of the engine that both systems have, empty where nothing is said."""
_CHUNKS: Final = "async_chunk"
_ENGINE: Final = "engine"


@frozen
class StageWords:
    """One stage in the words of the other system."""

    layout: Mapping[str, object] = field(default_factory=dict)
    """Its devices and axes."""
    fields: Mapping[str, object] = field(default_factory=dict)
    """Its other fields."""
    unsaid: tuple[str, ...] = ()
    """What that system has no word for."""


def stage_words(
    stage: StagePlan,
    entry: Mapping[str, object],
    axes: list[Mapping[str, object]],
    catalog: Catalog,
) -> StageWords:
    """Say a stage; `entry` and `axes` are what a deploy and a strategy file of ours would say."""
    known = {name for declared in SHARED for name in hints(declared)}
    usual = engine_defaults(stage, catalog)
    fields: dict[str, object] = {}
    unsaid: list[str] = []
    for name, value in entry.items():
        if name in known or name == _CHUNKS:
            fields |= {} if value is None else {name: value}
        elif name in _MAPPINGS:
            fields |= {name: value} if value else {}
        elif name == _ENGINE:
            unsaid += _engine(stage, catalog)
        elif name != STAGE_KEY and (name not in usual or usual[name] != value):
            is_ours = any(name in hints(declared) for declared in KIND_FIELDS)
            whose = "a field of stagemesh" if is_ours else f"an option of engine `{stage.engine}`"
            unsaid.append(f"{written(f'{stage.name}.{name}', value)}, {whose}")
    layout: dict[str, object] = {"devices": device_list(stage)}
    kind = ExecutionType(stage.execution_type)
    for axis, said in zip(stage.axes, axes, strict=True):
        declared = catalog.axes[axis.axis]
        found = axis_fields(axis, declared, spelled_out_for=kind)
        layout |= found.fields
        unsaid += _members(stage, axis, declared, found.unsaid, said)
    return StageWords(fields=fields, layout=layout, unsaid=tuple(unsaid))


def _engine(stage: StagePlan, catalog: Catalog) -> Iterator[str]:
    """The engine follows from the kind of stage, there as here."""
    usual = default_engine(ExecutionType(stage.execution_type), catalog.engines.values())
    if stage.engine not in (NO_ENGINE, None if usual is None else usual.name):
        yield f"{written(f'{stage.name}.{_ENGINE}', stage.engine)}, an engine of stagemesh"


def _members(
    stage: StagePlan,
    axis: AxisPlan,
    declared: Axis,
    unsaid: tuple[str, ...],
    entry: Mapping[str, object],
) -> Iterator[str]:
    """Tell of every member of an axis that no field says; policies of replicas are a flag."""
    path = f"{stage.name}.{axis.axis}"
    for member in unsaid:
        if member != ROUTING:
            yield written(f"{path}.{member}", entry[member])
        elif declared.role is not WorldRole.MULTIPLIES_REPLICAS:
            yield f"{written(f'{path}.{member}', entry[member])}, which it does not carry out"
    for name in BINDINGS:
        for bound in cast("list[Mapping[str, object]]", entry.get(name, [])):
            yield written(f"{path}.{name}", bound)
