"""What a path such as `thinker.tp` means in a plan, and what was said about it.

A plan that does not stand yet can be asked as well: then only what was given is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stagemesh.config.catalog import Catalog
from stagemesh.config.fields import stage_fields
from stagemesh.plan.make import Made
from stagemesh.plan.provenance import AXES, axis_values, cleared_of, values_of
from stagemesh.plan.tally import defaults_of, held_by
from stagemesh.plan.values import StagePlan, ValuePlan
from stagemesh.spec.axis import ENABLED, SIZE
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer

_MEMBERS: Mapping[str, str] = {"l1_owner": "owner", ENABLED: SIZE}
"""Members of an axis that go by another name in a plan."""


@frozen
class Subject:
    """What a path means."""

    stage: str | None
    """The stage; `None` for the whole pipeline."""
    path: str
    """Path of the value as a plan has it; empty for everything that was said about the stage."""

    @property
    def shown(self) -> str:
        """The path as people write it."""
        path = self.path
        if path.startswith(f"{AXES}."):
            path = path.removeprefix(f"{AXES}.").removesuffix(f".{SIZE}")
        return ".".join(part for part in (self.stage, path) if part)


@frozen
class Record:
    """All values of a plan, or of what was said where there is no plan yet."""

    names: Mapping[str, str]
    """Names of the stages by name and by number."""
    stages: Mapping[str, StagePlan]
    """Stages of the plan by name; empty where there is none."""
    given: Mapping[str | None, Mapping[str, ValuePlan]]
    """Values that somebody gave, by stage and path."""

    def values(self, stage: str | None) -> Mapping[str, ValuePlan]:
        """Values of a stage by path, those that nobody gave included."""
        found = dict(self.given.get(stage, {}))
        if stage is not None and stage in self.stages:
            found |= {path: _default(value) for path, value in defaults_of(self.stages[stage])}
        return found

    def held(self, stage: str | None) -> Mapping[str, object]:
        """What holds in a stage by path, whoever gave it; empty where there is no plan."""
        return held_by(self.stages[stage]) if stage is not None and stage in self.stages else {}

    @property
    def paths(self) -> Iterator[str]:
        """Every path that can be asked for, as people write it."""
        for stage in (None, *dict.fromkeys(self.names.values())):
            for path in ("", *self.values(stage)):
                yield Subject(stage=stage, path=path).shown


def record_of(made: Made) -> Record | None:
    """Gather what a plan says, or else what was said for it; `None` when that cannot be told."""
    if made.plan is not None:
        stages = {stage.name: stage for stage in made.plan.stages}
        numbers = {str(stage.stage_id): stage.name for stage in made.plan.stages}
        given: dict[str | None, Mapping[str, ValuePlan]] = {None: made.plan.values}
        given |= {name: stage.values for name, stage in stages.items()}
        return Record(
            names={**numbers, **{name: name for name in stages}}, stages=stages, given=given
        )
    settings = None if made.loaded is None else made.loaded.settings
    if settings is None:
        return None
    said: dict[str | None, Mapping[str, ValuePlan]] = {
        stage.name: {
            **cleared_of(stage.cleared),
            **axis_values(stage.axes.values()),
            **values_of(stage.fields),
        }
        for stage in settings.stages
    }
    numbers = {str(stage.stage_id): stage.name for stage in settings.stages}
    names = {**numbers, **{name: name for name in numbers.values()}}
    said[None] = {**cleared_of(settings.cleared), **values_of(settings.fields)}
    return Record(names=names, stages={}, given=said)


def subject_of(what: str, record: Record, catalog: Catalog) -> Subject:
    """Read a path: the name or number of a stage, then a field or an axis with its member."""
    first, _, rest = what.partition(".")
    stage = record.names.get(first)
    return Subject(stage=stage, path=_path(rest if stage is not None else what, catalog))


def _path(text: str, catalog: Catalog) -> str:
    parts = text.split(".")
    parts = parts[1:] if parts[0] == AXES else parts
    field = stage_fields(catalog).get(parts[0]) if parts else None
    if parts and parts[0] in catalog.axes:
        member = parts[1] if len(parts) > 1 else SIZE
        return f"{AXES}.{parts[0]}.{_MEMBERS.get(member, member)}"
    if field is not None and field.axis is not None and field.sets is not None:
        member = field.sets.member
        return f"{AXES}.{field.axis.name}.{_MEMBERS.get(member, member)}"
    return ".".join(parts)


def _default(value: object) -> ValuePlan:
    layer = Layer.DEFAULT.name.lower()
    return ValuePlan(value=value, layer=layer, origin="default", is_default=True)
