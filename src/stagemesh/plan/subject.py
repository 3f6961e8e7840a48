"""What a path such as `thinker.tp` means in a plan, and what was said about it.

A plan that does not stand yet can be asked as well: then only what was given is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.check import hints
from stagemesh.config.edges import EDGES
from stagemesh.config.fields import stage_fields
from stagemesh.config.launch import LaunchOptions
from stagemesh.plan.edge_values import CONNECTOR, edge_path
from stagemesh.plan.make import Made
from stagemesh.plan.provenance import AXES, axis_values, cleared_of, values_of
from stagemesh.plan.tally import held_by, not_given
from stagemesh.plan.values import EdgePlan, Plan, StagePlan, ValuePlan
from stagemesh.plan.wide_values import LAUNCH, given_values, held_by_plan
from stagemesh.spec.axis import ENABLED, SIZE
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer

STAGES: Final = "stages"
"""Stands for all stages at once; a path may begin with it."""
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
    wide: Mapping[str, object] = field(default_factory=dict)
    """What holds for the whole pipeline by path; empty where there is no plan."""
    edges: Mapping[str, EdgePlan] = field(default_factory=dict)
    """Edges of the plan by the numbers of their stages, such as `0-1`, and by their names."""

    @property
    def is_planned(self) -> bool:
        """Whether there is a plan, so that what nobody gave is known as well."""
        return bool(self.stages)

    def values(self, stage: str | None) -> Mapping[str, ValuePlan]:
        """Values of a stage by path, those that nobody gave included."""
        found = dict(self.given.get(stage, {}))
        unsaid = not_given(self.held(stage), found)
        return found | {path: _default(value) for path, value in unsaid}

    def held(self, stage: str | None) -> Mapping[str, object]:
        """What holds in a stage by path, whoever gave it; empty where there is no plan."""
        if stage is not None:
            return held_by(self.stages[stage]) if stage in self.stages else {}
        given = self.given.get(None, {})  # a connector goes by the name that a file gives it
        is_named = {path for path in given if path.endswith(f".{CONNECTOR}")}
        return {path: value for path, value in self.wide.items() if path not in is_named}

    @property
    def held_as_shown(self) -> Mapping[str, object]:
        """Everything that holds, by the paths that people write."""
        return {
            Subject(stage=stage, path=path).shown: value
            for stage in (None, *self.stages)
            for path, value in self.held(stage).items()
        }

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
            names={**numbers, **{name: name for name in stages}},
            stages=stages,
            given=given,
            wide=held_by_plan(made.plan),
            edges=_edges(made.plan),
        )
    loaded = made.loaded
    if loaded is None or loaded.pipeline is None or loaded.settings is None:
        return None
    settings = loaded.settings
    said: dict[str | None, Mapping[str, ValuePlan]] = {
        stage.name: {
            **cleared_of(stage.cleared),
            **axis_values(stage.axes.values(), {}),
            **values_of(stage.fields),
        }
        for stage in settings.stages
    }
    numbers = {str(stage.stage_id): stage.name for stage in settings.stages}
    names = {**numbers, **{name: name for name in numbers.values()}}
    said[None] = given_values(loaded.pipeline, settings, ())
    return Record(names=names, stages={}, given=said)


def subject_of(what: str, record: Record, catalog: Catalog) -> Subject:
    """Read a path: the name or number of a stage, then a field or an axis with its member."""
    first, _, rest = what.removeprefix(f"{STAGES}.").partition(".")
    stage = record.names.get(first)
    path = _wide_path(what, record) if stage is None else _path(rest, catalog)
    return Subject(stage=stage, path=path)


def _path(text: str, catalog: Catalog) -> str:
    """Return the path of a value of a stage."""
    parts = text.removeprefix(f"{AXES}.").split(".")
    known = stage_fields(catalog).get(parts[0])
    if parts[0] in catalog.axes:
        member = parts[1] if len(parts) > 1 else SIZE
        return f"{AXES}.{parts[0]}.{_MEMBERS.get(member, member)}"
    if known is not None and known.axis is not None and known.sets is not None:
        member = known.sets.member
        return f"{AXES}.{known.axis.name}.{_MEMBERS.get(member, member)}"
    return ".".join(parts)


def _wide_path(text: str, record: Record) -> str:
    """Return the path of a value of the pipeline: edges may be named by stages, options alone."""
    first, *rest = text.split(".")
    if first == EDGES and rest and rest[0] in record.edges:
        return ".".join([edge_path(record.edges[rest[0]]), *rest[1:]])
    return f"{LAUNCH}.{text}" if first in hints(LaunchOptions) else text


def _edges(plan: Plan) -> Mapping[str, EdgePlan]:
    found: dict[str, EdgePlan] = {}
    for edge in plan.edges:
        names = plan.stage(edge.source).name, plan.stage(edge.target).name
        found |= {f"{edge.source}-{edge.target}": edge, "-".join(names): edge}
    return found


def _default(value: object) -> ValuePlan:
    layer = Layer.DEFAULT.name.lower()
    return ValuePlan(value=value, layer=layer, origin="default", is_default=True)
