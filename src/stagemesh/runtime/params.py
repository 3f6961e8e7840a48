"""Request parameters: what a caller may set per stage, checked, over the plan's own values."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

from stagemesh.config.check import check, hints
from stagemesh.config.place import Nowhere, Place
from stagemesh.errors import DiagnosticError
from stagemesh.plan.params import constrained
from stagemesh.plan.plain import plain
from stagemesh.plan.values import Plan, StagePlan
from stagemesh.spec.diagnostic import Diagnostic, did_you_mean
from stagemesh.spec.pipeline import PipelineConfig
from stagemesh.spec.registry import ENGINES, MODELS

SamplingParams: TypeAlias = Mapping[str, Mapping[str, object]]
"""Parameters of one request by stage name."""

_log: Final = logging.getLogger(__name__)
_SOURCE: Final = Nowhere(source="sampling_params")


def check_prompt(text: str) -> list[Diagnostic]:
    """Say what is wrong with a prompt before anything is started for it."""
    if text.strip():
        return []
    return [
        Diagnostic(code="RT004", message="the prompt is empty", help="give it a text to answer")
    ]


def check_runnable(plan: Plan) -> list[Diagnostic]:
    """Say why a valid plan cannot be run, one finding for each reason."""
    message = "the plan cannot be run: {}"
    return [Diagnostic(code="RT003", message=message.format(why)) for why in plan.not_runnable]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRules:
    """What a request may say to one stage."""

    stage_id: int
    """The stage."""
    defaults: Mapping[str, object]
    """The plan's parameters."""
    annotations: Mapping[str, Any]
    """Type of every parameter that the engine or the network takes."""
    constraints: Mapping[str, object]
    """What the pipeline does not let go of."""


class RequestRules:
    """What a request may say to the stages of one plan."""

    def __init__(self, plan: Plan) -> None:
        """Gather the parameter types of the plan's engines and pipeline."""
        pipelines = (found for found in MODELS.declarations() if found.model_type == plan.pipeline)
        pipeline = next(pipelines, None)
        self._stages = {stage.name: _rules(stage, pipeline) for stage in plan.stages}

    def merge(self, given: SamplingParams) -> Mapping[int, dict[str, object]]:
        """Return every stage's parameters, by stage id.

        Raises `DiagnosticError` with everything that is wrong with `given`.
        """
        found: list[Diagnostic] = []
        own: dict[str, dict[str, object]] = {}
        for name, values in given.items():
            if name in self._stages:
                own[name] = _checked(name, values, self._stages[name], found)
            else:
                message = f"the model has no stage `{name}`"
                help_text = did_you_mean(name, self._stages)
                found.append(Diagnostic(code="RT001", message=message, help=help_text))
        if found:
            raise DiagnosticError(found)
        return {
            rules.stage_id: _merged(name, own.get(name, {}), rules)
            for name, rules in self._stages.items()
        }


def _rules(stage: StagePlan, pipeline: PipelineConfig | None) -> StageRules:
    (engine,) = ENGINES.load(stage.engine)
    declared = None if pipeline is None else pipeline.stage(stage.name)
    kinds = [engine.params] if declared is None else [engine.params, declared.params]
    return StageRules(
        stage_id=stage.stage_id,
        defaults=stage.sampling,
        annotations={item.name: hints(kind)[item.name] for kind in kinds for item in fields(kind)},
        constraints={} if declared is None else declared.sampling_constraints,
    )


def _checked(
    stage: str, values: Mapping[str, object], rules: StageRules, found: list[Diagnostic]
) -> dict[str, object]:
    taken = {}
    for name, value in values.items():
        if name not in rules.annotations:
            message = f"stage `{stage}` knows no parameter `{name}`"
            help_text = did_you_mean(name, rules.annotations)
            found.append(Diagnostic(code="RT002", message=message, help=help_text))
            continue
        place = Place(located=_SOURCE, path=(stage, name), label=f"{stage}.{name}")
        checked = check(rules.annotations[name], value, place)
        found.extend(checked.diagnostics)
        taken[name] = plain(checked.value)
    return taken


def _merged(stage: str, own: Mapping[str, object], rules: StageRules) -> dict[str, object]:
    merged = dict(constrained({**rules.defaults, **own}, rules.constraints))
    for name, value in own.items():
        if merged[name] != value:
            _log.warning("%s.%s: %r gives way to the model's %r", stage, name, value, merged[name])
    return merged
