"""Which engine runs a stage, and whether it takes what the stage was given."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, fields
from typing import Final

from stagemesh.config.catalog import chosen_engine
from stagemesh.config.check import hints
from stagemesh.config.kind_fields import INSTEAD, KIND_FIELDS
from stagemesh.config.plain import plain, plain_fields
from stagemesh.config.schema import AUTO, StageEntry
from stagemesh.config.settings import Sourced, StageSettings
from stagemesh.plan.refusal import make_options
from stagemesh.plan.report import Report
from stagemesh.plan.typed import typed
from stagemesh.spec.diagnostic import Diagnostic, did_you_mean
from stagemesh.spec.engine import EngineSpec
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import ExecutionType, NoOptions, StagePipelineConfig
from stagemesh.spec.unset import UNSET

NO_ENGINE: Final = "none"

PLANNED_FIELDS: Final = frozenset(item.name for item in fields(StageEntry))
"""Stage fields that the planner itself uses; all others are arguments of the engine."""


@frozen
class EngineChoice:
    """The engine of one stage with its arguments."""

    spec: EngineSpec | None
    """Its declaration; `None` where no engine runs this kind of stage yet."""
    args: object
    """An instance of the declaration's `options`."""
    stage_args: Mapping[str, object] = field(default_factory=dict)
    """Given fields of the stage's kind on which the engine does not act yet."""
    said: Mapping[str, object] = field(default_factory=dict)
    """All fields that were given, but those of the planner itself and those that nobody takes."""
    params: Mapping[str, object] = field(default_factory=dict)
    """Request parameters that hold where a request does not say others."""
    is_known: bool = True
    """False when a mistake was reported, so that nothing more can be said about the engine."""

    def value(self, name: str) -> object:
        """Return the value of a stage field that holds; `None` where there is none."""
        return plain_fields(self.args).get(name, self.said.get(name))


def choose_engine(
    stage: StagePipelineConfig,
    settings: StageSettings,
    engines: Mapping[str, EngineSpec],
    report: Report,
) -> EngineChoice:
    """Take the engine that was named, or the default of the stage's kind; make its arguments."""
    named = settings.fields.get("engine")
    said = {
        name: plain(given.value)
        for name, given in settings.fields.items()
        if name not in PLANNED_FIELDS
    }
    spec = chosen_engine(None if named is None else named.value, stage.execution_type, engines)
    if named is not None and named.value != AUTO:
        problem = _wrong_engine(stage, named, spec, engines)
        if problem is not None:
            report.add(problem, *_of_no_engine(stage, settings, spec, engines))
            return EngineChoice(spec=None, args=NoOptions(), said=said, is_known=False)
    taken, left = _split(settings, spec)
    stage_args = _stage_args(stage, left, spec, engines, report)
    return EngineChoice(
        spec=spec,
        args=NoOptions() if spec is None else _arguments(stage, taken, spec, report),
        stage_args=stage_args,
        said={name: said[name] for name in said if name in taken or name in stage_args},
    )


def meant_engines(
    stage: StagePipelineConfig, named: EngineSpec | None, engines: Mapping[str, EngineSpec]
) -> tuple[EngineSpec, ...]:
    """Return the engines that may be meant where a wrong one is named: the usual one comes first.

    The one that is named comes last, although it does not run the stage.
    """
    usual = chosen_engine(AUTO, stage.execution_type, engines)
    fitting = (each for each in engines.values() if stage.execution_type in each.runs)
    found = (usual, *fitting, named)
    return tuple({each.name: each for each in found if each is not None}.values())


def _of_no_engine(
    stage: StagePipelineConfig,
    settings: StageSettings,
    named: EngineSpec | None,
    engines: Mapping[str, EngineSpec],
) -> Iterator[Diagnostic]:
    """Tell of fields that are wrong whichever engine was meant, the one that is named included."""
    own = _of_kind(stage.execution_type)
    meant = meant_engines(stage, named, engines)
    taken = {name for each in meant for name in hints(each.options)} | own | PLANNED_FIELDS
    for name, value in settings.fields.items():
        if name not in taken:
            yield _nobodys(stage, name, value, None, engines, own)


def _wrong_engine(
    stage: StagePipelineConfig,
    named: Sourced[object],
    spec: EngineSpec | None,
    engines: Mapping[str, EngineSpec],
) -> Diagnostic | None:
    kind = stage.execution_type
    fitting = {name for name, each in engines.items() if kind in each.runs}
    if spec is None:
        return Diagnostic(
            code="PL020",
            message=f"unknown engine `{named.value}`",
            origin=named.origin,
            help=did_you_mean(str(named.value), {AUTO, *fitting}),
        )
    if spec.name not in fitting:
        return Diagnostic(
            code="PL021",
            message=f"engine `{spec.name}` does not run the `{kind.value}` stage"
            f" `{stage.model_stage}`",
            origin=named.origin,
            help=did_you_mean(AUTO, {AUTO, *fitting}),
        )
    return None


def _split(
    settings: StageSettings, spec: EngineSpec | None
) -> tuple[Mapping[str, Sourced[object]], Mapping[str, Sourced[object]]]:
    """Return the given fields that are arguments of the engine, and the others."""
    options = set() if spec is None else {item.name for item in fields(spec.options)}
    given = {name: value for name, value in settings.fields.items() if name not in PLANNED_FIELDS}
    return (
        {name: value for name, value in given.items() if name in options},
        {name: value for name, value in given.items() if name not in options},
    )


def _stage_args(
    stage: StagePipelineConfig,
    given: Mapping[str, Sourced[object]],
    spec: EngineSpec | None,
    engines: Mapping[str, EngineSpec],
    report: Report,
) -> Mapping[str, object]:
    """Return the fields of the stage's kind; every other one is nobody's and is reported."""
    own = _of_kind(stage.execution_type)
    for name, value in given.items():
        if name not in own:
            report.add(_nobodys(stage, name, value, spec, engines, own))
    return {name: plain(value.value) for name, value in sorted(given.items()) if name in own}


def _of_kind(kind: ExecutionType) -> frozenset[str]:
    """Return the fields of a kind of stage, whichever engine runs it."""
    declared = (each for each, kinds in KIND_FIELDS.items() if kind in kinds)
    return frozenset(item.name for each in declared for item in fields(each))


def _nobodys(
    stage: StagePipelineConfig,
    name: str,
    value: Sourced[object],
    spec: EngineSpec | None,
    engines: Mapping[str, EngineSpec],
    own: Collection[str],
) -> Diagnostic:
    """Say who would take the field, or else what is taken here."""
    kind = stage.execution_type
    owners = [kinds for declared, kinds in KIND_FIELDS.items() if name in hints(declared)]
    if owners:
        kinds = ", ".join(sorted(f"`{each.value}`" for each in owners[0]))
        return Diagnostic(
            code="PL027",
            message=f"`{stage.model_stage}` is a `{kind.value}` stage, which has no `{name}`",
            origin=value.origin,
            help=INSTEAD.get(name, f"`{name}` is a field of {kinds} stages; leave it out"),
        )
    takers = [
        each.name for each in engines.values() if kind in each.runs and name in hints(each.options)
    ]
    engine = "no engine" if spec is None else f"engine `{spec.name}`"
    options = set() if spec is None else set(hints(spec.options))
    help_text = did_you_mean(name, options | set(own))
    if takers:
        help_text = "engines that take it: " + ", ".join(f"`{each}`" for each in sorted(takers))
    return Diagnostic(
        code="PL022",
        message=f"{engine} of `{stage.model_stage}` takes `{name}`"
        if spec is None
        else f"{engine} of `{stage.model_stage}` takes no `{name}`",
        origin=value.origin,
        help=help_text,
    )


def _arguments(
    stage: StagePipelineConfig,
    given: Mapping[str, Sourced[object]],
    spec: EngineSpec,
    report: Report,
) -> object:
    taken = {
        name: typed(hints(spec.options)[name], value, f"{stage.model_stage}.{name}", report)
        for name, value in given.items()
    }
    if UNSET in taken.values():
        return NoOptions()
    made, refusals = make_options(spec.options, taken)
    who = f"engine `{spec.name}` of `{stage.model_stage}` says"
    origins = {name: value.origin for name, value in given.items()}
    report.add(*(refusal.told("PL023", who, origins) for refusal in refusals))
    return NoOptions() if refusals else made
