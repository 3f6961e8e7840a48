"""Default request parameters and `additional_config` of a stage, checked against what it knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import cast

from stagemesh.config.check import hints
from stagemesh.config.plain import plain, plain_fields
from stagemesh.config.settings import Sourced, StageSettings
from stagemesh.config.tree import quoted
from stagemesh.plan.engine import EngineChoice, choose_engine, meant_engines
from stagemesh.plan.refusal import make_options
from stagemesh.plan.report import Report
from stagemesh.plan.typed import typed
from stagemesh.spec.diagnostic import Diagnostic, Severity, did_you_mean
from stagemesh.spec.engine import EngineSpec
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.pipeline import StagePipelineConfig
from stagemesh.spec.unset import UNSET


def model_args(
    stage: StagePipelineConfig, settings: StageSettings, report: Report
) -> Mapping[str, object]:
    """Return `additional_config` with the defaults of the stage's options filled in."""
    given = settings.fields.get("additional_config")
    taken = _checked(given, [stage.options], f"stage `{stage.model_stage}`", report)
    made, refusals = make_options(stage.options, taken)
    what = f"`additional_config` of `{stage.model_stage}` is refused"
    origins = {} if given is None else {name: given.at(name) for name in taken}
    report.add(*(refusal.told("PL025", what, origins) for refusal in refusals))
    return {} if refusals else plain_fields(made)


def chosen(
    stage: StagePipelineConfig,
    settings: StageSettings,
    engines: Mapping[str, EngineSpec],
    report: Report,
) -> EngineChoice:
    """Return the engine of a stage with its arguments and its default request parameters."""
    choice = choose_engine(stage, settings, engines, report)
    if not choice.is_known:
        _of_no_engine(stage, settings, engines, report)
        return choice
    return replace(choice, params=sampling(stage, settings, choice, report))


def _of_no_engine(
    stage: StagePipelineConfig,
    settings: StageSettings,
    engines: Mapping[str, EngineSpec],
    report: Report,
) -> None:
    """Tell of request parameters that are wrong whichever engine was meant, as the usual would."""
    given = settings.fields.get("default_sampling_params")
    meant = meant_engines(stage, engines.get(str(settings.fields["engine"].value)), engines)
    if given is None or not meant:
        return
    whose = f"stage `{stage.model_stage}`"
    kinds = [(spec.params, stage.params) for spec in meant]
    taken = {name for each in kinds for name in _checked(given, each, whose, Report(), stage.lacks)}
    values = cast("Mapping[str, object]", given.value)
    left = {name: value for name, value in values.items() if name not in taken}
    _checked(replace(given, value=left), kinds[0], whose, report, stage.lacks)


def sampling(
    stage: StagePipelineConfig, settings: StageSettings, choice: EngineChoice, report: Report
) -> Mapping[str, object]:
    """Return the default request parameters, overlaid by what the pipeline does not let go of."""
    whose, forced = f"stage `{stage.model_stage}`", stage.sampling_constraints
    given = settings.fields.get("default_sampling_params")
    if choice.spec is None:
        taken = {} if given is None else dict(cast("Mapping[str, object]", given.value))
        if taken:
            report.skip(f"request parameters of {whose}: no engine says what it takes")
    else:
        kinds = [choice.spec.params, stage.params]
        origin = Origin(layer=Layer.PIPELINE, source=f"`sampling_constraints` of {whose}")
        forced = _checked(Sourced(value=forced, origin=origin), kinds, whose, report)
        taken = _checked(given, kinds, whose, report, stage.lacks)
        if given is None or len(taken) == len(cast("Mapping[str, object]", given.value)):
            report.add(*_refused(stage, kinds, {**taken, **forced}, given))
    merged = constrained(taken, forced)
    for name, value in taken.items():
        replaced = merged[name] != plain(value) and not isinstance(merged[name], tuple | Mapping)
        if given is not None and replaced:
            report.add(_forced(f"{stage.model_stage}.{name}", merged[name], given.at(name)))
    return merged


def _refused(
    stage: StagePipelineConfig,
    kinds: Iterable[type],
    taken: Mapping[str, object],
    given: Sourced[object] | None,
) -> Iterator[Diagnostic]:
    """Ask the types of the parameters what they have against values that are each of its type."""
    origins = {} if given is None else {name: given.at(name) for name in taken}
    who = f"parameters of `{stage.model_stage}` are refused"
    for kind in kinds:
        own = {item.name: taken[item.name] for item in fields(kind) if item.name in taken}
        _made, refusals = make_options(kind, own)
        yield from (refusal.told("PL028", who, origins) for refusal in refusals)


def _forced(label: str, value: object, origin: Origin) -> Diagnostic:
    return Diagnostic(
        code="PL026",
        severity=Severity.WARNING,
        message=f"{quoted(label)} is {quoted(value)}: the model does not take another value",
        origin=origin,
        help="leave it out",
    )


def constrained(
    given: Mapping[str, object], constraints: Mapping[str, object]
) -> Mapping[str, object]:
    """Overlay constraints: lists are appended without duplicates, mappings are merged by key.

    Everything else is replaced.
    """
    result = {name: plain(value) for name, value in given.items()}
    for name, required in constraints.items():
        forced, own = plain(required), result.get(name)
        if isinstance(forced, tuple) and isinstance(own, tuple):
            forced = _each_once((*own, *forced))
        elif isinstance(forced, Mapping) and isinstance(own, Mapping):
            forced = constrained(own, forced)
        result[name] = forced
    return result


def _each_once(items: tuple[object, ...]) -> tuple[object, ...]:
    """Drop what comes again; members may be of any kind."""
    kept: dict[str, object] = {}
    for item in items:
        kept.setdefault(repr(item), item)
    return tuple(kept.values())


def by_key(lower: Mapping[str, object], upper: Mapping[str, object]) -> dict[str, object]:
    """Lay parameters over others: mappings are merged by key, everything else is replaced."""
    merged = dict(lower)
    for name, value in upper.items():
        below = merged.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[name] = by_key(below, value)
        else:
            merged[name] = value
    return merged


def _checked(
    given: Sourced[object] | None,
    kinds: Iterable[type],
    whose: str,
    report: Report,
    lacks: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, object]:
    """Return the members that one of `kinds` has as a field, with the type that it asks for.

    `lacks` says of some why they mean nothing all the same.
    """
    if given is None:
        return {}
    annotations = {
        item.name: hints(kind)[item.name]
        for kind in kinds
        for item in fields(kind)
        if item.name not in lacks
    }
    taken: dict[str, object] = {}
    for name, value in cast("Mapping[str, object]", given.value).items():
        if name not in annotations:
            report.add(
                Diagnostic(
                    code="PL024",
                    message=f"{whose} knows no parameter `{name}`",
                    origin=given.at(name),
                    help=lacks.get(name) or did_you_mean(name, annotations),
                )
            )
            continue
        built = typed(annotations[name], _member(given, name, value), name, report)
        if built is not UNSET:
            taken[name] = built
    return taken


def _member(given: Sourced[object], name: str, value: object) -> Sourced[object]:
    """Return that member with its place, or else that of the whole mapping."""
    return given.parts.get(name) or Sourced(value=value, origin=given.origin)
