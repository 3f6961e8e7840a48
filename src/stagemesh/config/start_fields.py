"""Reads what only a flag can say of all stages: default request parameters, and one policy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from stagemesh.config.check import hints, wrong_type
from stagemesh.config.entries import read_stage
from stagemesh.config.flag_rules import StartFields
from stagemesh.config.forms import choices_of
from stagemesh.config.given import origin_of, plain_value
from stagemesh.config.inputs import GivenField
from stagemesh.config.merge import merge
from stagemesh.config.overrides import by_stage, known_stage
from stagemesh.config.patch import UNKNOWN_STAGE, Patch
from stagemesh.config.place import Nowhere, Place, Run
from stagemesh.config.scope import Scope
from stagemesh.config.settings import Sourced
from stagemesh.config.tree import quoted
from stagemesh.spec.axis import ENABLED, Axis, WorldRole
from stagemesh.spec.diagnostic import Diagnostic, Note, did_you_mean
from stagemesh.spec.origin import Layer
from stagemesh.spec.patterns import Policy
from stagemesh.spec.pipeline import StagePipelineConfig
from stagemesh.spec.unset import UNSET

_ROUTING: Final = "routing"


def read_sampling(given: GivenField, scope: Scope, run: Run) -> Iterator[Patch]:
    """Read default request parameters by stage; those of an only stage may stand alone.

    They belong to the layer of single stages: what is said there of the same parameter must agree.
    """
    value = plain_value(given, hints(StartFields)[given.name], run)
    root = Place(located=Nowhere(source=given.source), label=given.name)
    if value is None or not isinstance(value, Mapping):
        wrong_type(UNSET if value is None else value, root, run, "a mapping")
        return
    stages = () if scope.stages.pipeline is None else scope.stages.pipeline.stages
    loose = [name for name, each in value.items() if not isinstance(each, Mapping)]
    loose = [name for name in loose if known_stage(name, scope.stages) is None]
    if len(stages) == 1 and any(known_stage(name, scope.stages) is None for name in value):
        place = Place(located=root.located, label=stages[0].model_stage)
        yield from _parameters(given, value, place, stages[0], scope, run)
    elif loose and stages:
        _tell_loose(given, loose[0], value[loose[0]], scope, run)
    else:
        for stage, place, entry in by_stage(value, root, scope, run):
            yield from _parameters(given, entry, place, stage, scope, run)


def _parameters(
    given: GivenField,
    entry: object,
    place: Place,
    stage: StagePipelineConfig | None,
    scope: Scope,
    run: Run,
) -> Iterator[Patch]:
    known = stage is not None and scope.stages.pipeline is not None
    stage_id = stage.stage_id if known and stage is not None else UNKNOWN_STAGE
    yield from read_stage({given.name: entry}, place, stage_id, scope.fields, run)


def _tell_loose(given: GivenField, name: str | int, value: object, scope: Scope, run: Run) -> None:
    pipeline = scope.stages.pipeline
    assert pipeline is not None
    example = json.dumps({pipeline.stages[0].model_stage: {name: value}}, default=str)
    run.tell(
        "CF070",
        f"{quoted(given.source, 60)} must say of which stage {quoted(name)} is a parameter",
        origin_of(given),
        f"write `{example}`; {scope.stages.listed}",
    )


# --- the policy of all replicas ------------------------------------------------------------------


def read_policy(
    given: GivenField, scope: Scope, said: Sequence[Patch], run: Run
) -> Iterator[Patch]:
    """Read the policy of every stage that has replicas; one that a strategy names must agree."""
    axes = [
        axis
        for axis in scope.catalog.axes.values()
        if axis.role is WorldRole.MULTIPLIES_REPLICAS and axis.policies
    ]
    annotation = hints(StartFields)[given.name]
    value = plain_value(given, annotation, run)
    policy = Policy.parse(value) if isinstance(value, str) else None
    if value is None or value is UNSET:
        return
    if not any(policy in axis.policies for axis in axes):
        message = f"`{given.name}` does not take {quoted(value)}"
        help_text = did_you_mean(str(value), choices_of(annotation))
        run.tell("CF013", message, origin_of(given), help_text)
        return
    reached = list(_replicated(axes, scope, said))
    if not reached and scope.stages.pipeline is not None:
        message = f"{quoted(given.source, 60)} has no effect: no stage has replicas"
        help_text = "add some with `--num-replicas` or a strategy, or leave it out"
        run.tell("CF069", message, origin_of(given), help_text)
    for stage, axis in reached:
        path = ("axes", axis.name, _ROUTING)
        written = next((patch for patch in said if _is_strategys(patch, stage, path)), None)
        if written is not None and written.value is not policy:
            run.findings.append(_conflict(given, policy, written, stage))
        else:
            yield Patch(stage_id=stage.stage_id, path=path, value=policy, origin=origin_of(given))


def _replicated(
    axes: Sequence[Axis], scope: Scope, said: Sequence[Patch]
) -> Iterator[tuple[StagePipelineConfig, Axis]]:
    """Return the stages on which an axis that copies them is switched on."""
    roots = merge(said, [])
    for stage in () if scope.stages.pipeline is None else scope.stages.pipeline.stages:
        root = roots.get(stage.stage_id)
        for axis in axes:
            enabled = root.at("axes", axis.name, ENABLED) if root is not None else None
            if isinstance(enabled, Sourced) and enabled.value is True:
                yield stage, axis


def _is_strategys(patch: Patch, stage: StagePipelineConfig, path: tuple[str, ...]) -> bool:
    is_same = (patch.stage_id, patch.path) == (stage.stage_id, path)
    return is_same and patch.origin.layer is Layer.STRATEGY and patch.value is not UNSET


def _conflict(
    given: GivenField, policy: Policy | None, written: Patch, stage: StagePipelineConfig
) -> Diagnostic:
    here, there = (
        each.value if isinstance(each, Policy) else each for each in (policy, written.value)
    )
    return Diagnostic(
        code="CF068",
        message=f"conflicting load-balancer policy for `{stage.model_stage}`:"
        f" {quoted(here)} here, {quoted(there)} in the strategy",
        origin=origin_of(given),
        notes=(Note(message="the strategy names another one here", origin=written.origin),),
        help="leave one of them out, or let both say the same",
    )
