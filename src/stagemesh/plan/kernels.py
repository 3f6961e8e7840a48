"""Kernels under one spelling, before anybody looks at them.

Engines compare names without case and hyphens, and `diffusion_attention_backend` is a short way to
write `diffusion_attention_config: {default: ...}`. Here both become what a plan shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, cast

from stagemesh.config.flow import flow_text
from stagemesh.config.settings import Settings, Sourced, StageSettings
from stagemesh.plan.report import Report
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity
from stagemesh.spec.pipeline import ExecutionType, PipelineConfig

AUTO: Final = "auto"
"""Lets the engine choose; another thing than saying nothing."""
ATTENTION: Final = "diffusion_attention_config"
"""The structured choice of a diffusion stage."""
DEFAULT: Final = "default"
"""Its kernels for all layers."""
PER_ROLE: Final = "per_role"
"""Its kernels for some layers, by their role."""
BACKEND: Final = "backend"
"""The name of kernels that are given with options of theirs."""
SHORTHAND: Final = "diffusion_attention_backend"
"""Deprecated short form of the structured choice."""


def with_one_spelling(pipeline: PipelineConfig, settings: Settings, report: Report) -> Settings:
    """Return the settings with kernels in their own spelling; contradictions are reported."""
    kinds = {stage.stage_id: stage.execution_type for stage in pipeline.stages}
    stages = []
    for stage in settings.stages:
        fields = {**stage.fields, **_spelt(stage)}
        if kinds[stage.stage_id] is ExecutionType.DIFFUSION:
            fields = _folded(stage.name, fields, report)
        stages.append(replace(stage, fields=fields))
    return replace(settings, stages=tuple(stages))


def _spelt(stage: StageSettings) -> dict[str, Sourced[object]]:
    return {
        name: replace(given, value=spelling(given.value))
        for name, spelling in _SPELLING.items()
        if (given := stage.fields.get(name)) is not None and given.value is not None
    }


def _lower(name: object) -> object:
    return name.lower().replace("-", "_") if isinstance(name, str) else name


def _upper(name: object) -> object:
    if not isinstance(name, str):
        return name
    return AUTO if name.lower() == AUTO else name.upper().replace("-", "_")


def _one_choice(choice: object) -> object:
    if isinstance(choice, Mapping) and BACKEND in choice:
        return {**choice, BACKEND: _upper(choice[BACKEND])}
    return _upper(choice)


def _structured(config: object) -> object:
    spelt = dict(cast("Mapping[str, object]", config))
    if DEFAULT in spelt:
        spelt[DEFAULT] = _one_choice(spelt[DEFAULT])
    roles = spelt.get(PER_ROLE)
    if isinstance(roles, Mapping):
        spelt[PER_ROLE] = {role: _one_choice(choice) for role, choice in roles.items()}
    return spelt


_SPELLING: Final[Mapping[str, Callable[[object], object]]] = {
    "moe_backend": _lower,
    "linear_backend": _lower,
    "attention_backend": _upper,
    ATTENTION: _structured,
    SHORTHAND: _upper,
}


def _folded(
    stage: str, fields: dict[str, Sourced[object]], report: Report
) -> dict[str, Sourced[object]]:
    """Put the short form into the structured choice, unless a higher layer has another default."""
    short = fields.pop(SHORTHAND, None)
    if short is None or short.value is None:
        return fields
    structured = fields.get(ATTENTION, short)
    value = structured.value if isinstance(structured.value, Mapping) else {}
    if DEFAULT in value:
        default = structured.parts.get(DEFAULT, structured)
        report.add(_twice(stage, short, default))
        if short.origin.layer <= default.origin.layer:
            return fields
    else:
        report.add(_deprecated(stage, short))
    fields[ATTENTION] = replace(
        structured,
        value={**cast("Mapping[str, object]", value), DEFAULT: short.value},
        parts={**structured.parts, DEFAULT: short},
    )
    return fields


def _deprecated(stage: str, short: Sourced[object]) -> Diagnostic:
    return Diagnostic(
        code="PL099",
        severity=Severity.WARNING,
        message=f"`{SHORTHAND}` of `{stage}` is deprecated",
        origin=short.origin,
        help=f"write `{ATTENTION}: {{{DEFAULT}: {flow_text(short.value)}}}`",
    )


def _twice(stage: str, short: Sourced[object], default: Sourced[object]) -> Diagnostic:
    """In one layer they contradict each other; else the higher one wins, with a warning."""
    long_name = f"{ATTENTION}.{DEFAULT}"
    if short.origin.layer == default.origin.layer:
        return Diagnostic(
            code="PL097",
            message=f"`{stage}` has `{SHORTHAND}` and `{long_name}`",
            origin=short.origin,
            notes=(Note(message=f"`{long_name}` is set here", origin=default.origin),),
            help=f"keep `{long_name}` alone: the other one is its deprecated short form",
        )
    short_wins = short.origin.layer > default.origin.layer
    winner, loser = (short, default) if short_wins else (default, short)
    name = SHORTHAND if short_wins else long_name
    return Diagnostic(
        code="PL098",
        severity=Severity.WARNING,
        message=f"`{name}` of `{stage}` replaces what a lower layer says",
        origin=winner.origin,
        notes=(Note(message=f"`{loser.value}` is replaced here", origin=loser.origin),),
        help=f"choose once, by `{long_name}`: `{SHORTHAND}` is its deprecated short form",
    )
