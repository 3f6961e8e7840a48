"""Which engine runs a stage, and whether it takes what the stage was given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from stagemesh.config.check import hints
from stagemesh.config.schema import StageEntry
from stagemesh.config.settings import Sourced, StageSettings
from stagemesh.plan.report import Report
from stagemesh.plan.typed import typed
from stagemesh.spec.diagnostic import Diagnostic, did_you_mean
from stagemesh.spec.engine import EngineSpec
from stagemesh.spec.pipeline import NoOptions, StagePipelineConfig
from stagemesh.spec.unset import UNSET

AUTO: Final = "auto"
NO_ENGINE: Final = "none"

PLANNED_FIELDS: Final = frozenset(item.name for item in fields(StageEntry))
"""Stage fields that the planner itself uses; all others are arguments of the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """The engine of one stage with its arguments."""

    spec: EngineSpec | None
    """Its declaration; `None` where no engine runs this kind of stage yet."""
    args: object
    """An instance of the declaration's `options`."""
    is_known: bool = True
    """False when a mistake was reported, so that nothing more can be said about the engine."""


def choose_engine(
    stage: StagePipelineConfig,
    settings: StageSettings,
    engines: Mapping[str, EngineSpec],
    report: Report,
) -> EngineChoice:
    """Take the engine that was named, or the default of the stage's kind; make its arguments."""
    named = settings.fields.get("engine")
    if named is None or named.value == AUTO:
        spec = _default(stage, engines.values())
    else:
        spec = engines.get(str(named.value))
        problem = _wrong_engine(stage, named, spec, engines)
        if problem is not None:
            report.add(problem)
            return EngineChoice(spec=None, args=NoOptions(), is_known=False)
    if spec is None:
        return EngineChoice(spec=None, args=NoOptions())
    return EngineChoice(spec=spec, args=_arguments(stage, settings, spec, report))


def _default(stage: StagePipelineConfig, engines: Iterable[EngineSpec]) -> EngineSpec | None:
    fitting = (spec for spec in engines if stage.execution_type in spec.default_for)
    return min(fitting, key=lambda spec: spec.name, default=None)


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


def _arguments(
    stage: StagePipelineConfig, settings: StageSettings, spec: EngineSpec, report: Report
) -> object:
    allowed = {item.name for item in fields(spec.options)}
    given = {name: value for name, value in settings.fields.items() if name not in PLANNED_FIELDS}
    for name, value in given.items():
        if name not in allowed:
            report.add(
                Diagnostic(
                    code="PL022",
                    message=f"engine `{spec.name}` of `{stage.model_stage}` takes no `{name}`",
                    origin=value.origin,
                    help=did_you_mean(name, allowed),
                )
            )
    taken = {
        name: typed(
            hints(spec.options)[name],
            value.value,
            value.origin,
            f"{stage.model_stage}.{name}",
            report,
        )
        for name, value in given.items()
        if name in allowed
    }
    if UNSET in taken.values():
        return NoOptions()
    try:
        return spec.options(**taken)
    except ValueError as error:  # the options type of a plug-in says no
        report.add(
            Diagnostic(
                code="PL023",
                message=f"engine `{spec.name}` of `{stage.model_stage}` says: {error}",
                origin=next((given[name].origin for name in taken), None),
            )
        )
        return NoOptions()
