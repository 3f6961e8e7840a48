"""Request parameters: what a caller may set per stage, checked, over the plan's own values."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final, TypeAlias

from stagemesh.config.check import check, hints
from stagemesh.config.place import Nowhere, Place
from stagemesh.config.plain import plain
from stagemesh.errors import DiagnosticError
from stagemesh.plan.params import by_key, constrained
from stagemesh.plan.values import Plan, StagePlan
from stagemesh.runtime.declared import declared_stage
from stagemesh.spec.diagnostic import Diagnostic, did_you_mean
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import StagePipelineConfig
from stagemesh.spec.registry import ENGINES

SamplingParams: TypeAlias = Mapping[str, Mapping[str, object]]
"""Parameters of one request by stage name."""

_log: Final = logging.getLogger(__name__)
_SOURCE: Final = Nowhere(source="sampling_params")


@frozen
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
        self._stages = {
            stage.name: _rules(stage, declared_stage(plan, stage.name)) for stage in plan.stages
        }

    def merge(
        self, given: object, others: Iterable[Diagnostic] = ()
    ) -> Mapping[int, dict[str, object]]:
        """Return every stage's parameters, by stage id; `given` should be `SamplingParams`.

        Raises `DiagnosticError` with everything that is wrong with `given`, and with `others`,
        which were found in the rest of the request.
        """
        found = list(others)
        own: dict[str, dict[str, object]] = {}
        if not isinstance(given, Mapping):
            found.append(_no_mapping("sampling parameters are by stage name", given))
            given = {}
        for name, values in given.items():
            if name not in self._stages:
                message = f"the model has no stage `{name}`"
                help_text = did_you_mean(str(name), self._stages)
                found.append(Diagnostic(code="RT001", message=message, help=help_text))
            elif isinstance(values, Mapping):
                own[name] = _checked(name, values, self._stages[name], found)
            else:
                found.append(_no_mapping(f"parameters of stage `{name}` are by name", values))
        if found:
            raise DiagnosticError(found)
        return {
            rules.stage_id: _merged(name, own.get(name, {}), rules)
            for name, rules in self._stages.items()
        }


def _rules(stage: StagePlan, declared: StagePipelineConfig) -> StageRules:
    (engine,) = ENGINES.load(stage.engine)
    kinds = (engine.params, declared.params)
    return StageRules(
        stage_id=stage.stage_id,
        defaults=stage.sampling,
        annotations={item.name: hints(kind)[item.name] for kind in kinds for item in fields(kind)},
        constraints=declared.sampling_constraints,
    )


def _no_mapping(what: str, value: object) -> Diagnostic:
    help_text = 'give a mapping, such as `{"thinker": {"temperature": 0.5}}`'
    return Diagnostic(code="RT008", message=f"{what}: got `{value!r:.40}`", help=help_text)


def _checked(
    stage: str, values: Mapping[object, object], rules: StageRules, found: list[Diagnostic]
) -> dict[str, object]:
    taken = {}
    for name, value in values.items():
        if not isinstance(name, str) or name not in rules.annotations:
            message = f"stage `{stage}` knows no parameter `{name}`"
            help_text = did_you_mean(str(name), rules.annotations)
            found.append(Diagnostic(code="RT002", message=message, help=help_text))
            continue
        place = Place(located=_SOURCE, path=(stage, name), label=f"{stage}.{name}")
        checked = check(rules.annotations[name], value, place)
        found.extend(checked.diagnostics)
        taken[name] = plain(checked.value)
    return taken


def _merged(stage: str, own: Mapping[str, object], rules: StageRules) -> dict[str, object]:
    merged = dict(constrained(by_key(rules.defaults, own), rules.constraints))
    for name, value in own.items():
        if merged[name] != value:
            _log.warning("%s.%s: %r gives way to the model's %r", stage, name, value, merged[name])
    return merged
