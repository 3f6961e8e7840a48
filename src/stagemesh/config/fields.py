"""The stage fields of deploy files and flags: our own, those of axes and those of engines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from stagemesh.config.catalog import Catalog
from stagemesh.config.check import checker, hints
from stagemesh.config.kind_fields import KIND_FIELDS, PIPELINE_WIDE
from stagemesh.config.place import Place, Run
from stagemesh.config.schema import STAGE_KEY, Size, StageEntry
from stagemesh.spec.axis import ENABLED, SIZE, Axis, DeployField
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import ExecutionType, StagePipelineConfig
from stagemesh.spec.registry import PluginError
from stagemesh.spec.unset import UNSET


@frozen
class StageField:
    """One key that an entry of a stage may have."""

    name: str
    """The key."""
    annotations: tuple[Any, ...]
    """Types its value may have: more than one when engines disagree."""
    declared_by: type | Axis
    """The dataclass or the axis that declares it."""
    sets: DeployField | None = None
    """What it sets of the axis that declares it."""
    kinds: frozenset[ExecutionType] = frozenset(ExecutionType)
    """Kinds of stage that have it; those of an axis or an engine are checked when it is planned."""
    pipeline_wide: bool = False
    """Whether the root of a deploy file may give it for every stage that has it."""

    @property
    def axis(self) -> Axis | None:
        """The axis that the field says something about, if it does."""
        return self.declared_by if isinstance(self.declared_by, Axis) else None

    @property
    def fits(self) -> frozenset[ExecutionType]:
        """Kinds of stage that a value for every stage reaches."""
        if self.sets is not None and self.sets.fits is not None:
            return self.sets.fits
        return self.kinds if self.axis is None else self.axis.fits

    def reaches(self, stage: StagePipelineConfig) -> bool:
        """Whether a value for every stage is one for this stage."""
        return stage.execution_type in self.fits and self.refused_by(stage) is None

    def refused_by(self, stage: StagePipelineConfig) -> str | None:
        """Return why a stage cannot use it although its kind has it; `None` where it can."""
        reason = None if self.axis is None else stage.excludes.get(self.axis.name)
        return reason or stage.lacks.get(self.name)

    def check(self, value: object, place: Place, run: Run) -> object:
        """Build the typed value; `UNSET` when no annotation takes it.

        Where engines disagree the value stays as it was written: the stage's own engine types it.
        """
        attempts = [Run(partial=run.partial) for _ in self.annotations]
        for annotation, attempt in zip(self.annotations, attempts, strict=True):
            built = checker(annotation)(value, place, attempt)
            if not attempt.findings:
                return built if len(self.annotations) == 1 else value
        run.findings.extend(attempts[0].findings)
        return UNSET


def stage_fields(catalog: Catalog) -> Mapping[str, StageField]:
    """Return every stage field by name; raises `PluginError` when two plug-ins claim one name."""
    fields = {
        name: StageField(name=name, annotations=(annotation,), declared_by=StageEntry)
        for name, annotation in hints(StageEntry).items()
        if name != STAGE_KEY
    }
    for axis in catalog.axes.values():
        for sets in axis.deploy_fields:
            _claim(fields, sets.name, f"axis `{axis.name}`")
            fields[sets.name] = StageField(
                name=sets.name,
                annotations=(_annotation(axis, sets.member),),
                declared_by=axis,
                sets=sets,
                pipeline_wide=sets.pipeline_wide,
            )
    taken = {*fields, STAGE_KEY}
    fields |= _kind_fields()
    for engine in catalog.engines.values():
        for option in dataclasses.fields(engine.options):
            if option.name in taken:
                _claim(fields, option.name, f"engine `{engine.name}`")
            annotation, known = hints(engine.options)[option.name], fields.get(option.name)
            if known is None:
                fields[option.name] = StageField(
                    name=option.name, annotations=(annotation,), declared_by=engine.options
                )
            elif annotation not in known.annotations:
                annotations = (*known.annotations, annotation)
                fields[option.name] = dataclasses.replace(known, annotations=annotations)
    return fields


def usual_names(kind: ExecutionType, catalog: Catalog) -> frozenset[str]:
    """Return the stage fields, but for those of axes, and request parameters of a kind of stage."""
    engines = [each for each in catalog.engines.values() if kind in each.runs]
    declared = [StageEntry, *(each for each, kinds in KIND_FIELDS.items() if kind in kinds)]
    declared += [each for engine in engines for each in (engine.options, engine.params)]
    names = frozenset(item.name for each in declared for item in dataclasses.fields(each))
    return names - {STAGE_KEY}


def _kind_fields() -> dict[str, StageField]:
    return {
        item.name: StageField(
            name=item.name,
            annotations=(hints(declared)[item.name],),
            declared_by=declared,
            kinds=kinds,
            pipeline_wide=PIPELINE_WIDE.items() <= item.metadata.items(),
        )
        for declared, kinds in KIND_FIELDS.items()
        for item in dataclasses.fields(declared)
    }


def _annotation(axis: Axis, member: str) -> Any:  # noqa: ANN401  an annotation may be anything
    """Type of a member of an axis."""
    return {SIZE: Size, ENABLED: bool}.get(member) or hints(axis.options)[member]


def _claim(fields: Mapping[str, StageField], name: str, claimant: str) -> None:
    if name in fields or name == STAGE_KEY:
        message = f"{claimant} declares the stage field `{name}`, which exists already"
        raise PluginError(message)
