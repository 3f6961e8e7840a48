"""The model's own rules, asked over the effective configuration of all stages together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from stagemesh.config.check import check
from stagemesh.config.place import Nowhere, Place
from stagemesh.config.plain import plain_fields
from stagemesh.config.settings import AxisSettings, Sourced, StageSettings
from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.stage import StageDraft
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.model import ModelFinding, ModelStage, ModelView
from stagemesh.spec.origin import Layer, Origin

_CHOICE: Final = "pipeline"
"""The field that chooses the model, and so its rules."""


def check_model(context: RuleContext, ruled: Ruling) -> Sequence[Diagnostic]:
    """Return what the model has against a configuration in which every value is well."""
    pipeline = context.pipeline
    try:
        findings = tuple(pipeline.check(_view(context, ruled)))
    except Exception as error:  # noqa: BLE001  a model is a plug-in: whatever it raises is told
        failed = Diagnostic(
            code="MD027",
            message=f"the rules of `{pipeline.model_type}` failed on this configuration",
            origin=Origin(layer=Layer.PIPELINE, source=f"pipeline `{pipeline.model_type}`"),
            help=f"`{type(error).__name__}: {error}`",
        )
        return (failed,)
    return [
        Diagnostic(
            code=finding.code,
            message=finding.message,
            origin=_origin(finding, context),
            help=finding.help,
        )
        for finding in findings
    ]


def _view(context: RuleContext, ruled: Ruling) -> ModelView:
    return ModelView(
        stages={draft.stage.model_stage: _stage(draft, context, ruled) for draft in context.drafts},
        async_chunk=context.async_chunk,
        platform=context.devices.platform,
    )


def _stage(draft: StageDraft, context: RuleContext, ruled: Ruling) -> ModelStage:
    names = {each.stage_id: each.stage.model_stage for each in context.drafts}
    return ModelStage(
        options=_typed(draft.stage.options, draft.model_args),
        edge_options={
            names[edge.target]: _typed(draft.stage.edge_options, edge.model_options)
            for edge in context.edges
            if edge.source == draft.stage_id
        },
        fields={
            **plain_fields(draft.choice.args),
            **draft.choice.stage_args,
            "model_runner": ruled.runners[draft.stage_id],
            "distributed_executor_backend": ruled.executors[draft.stage_id],
        },
        sizes=draft.stack.sizes,
        ranks=dict(draft.stack.mesh),
    )


def _typed(kind: type, values: Mapping[str, object]) -> object:
    """Build options again from what the plan says about them."""
    return check(kind, values, Place(located=Nowhere(source="plan"))).value


# --- where it was written ------------------------------------------------------------------------


def _origin(finding: ModelFinding, context: RuleContext) -> Origin | None:
    """Return where the value at fault was written, else what asks for another one.

    That is the choice of the model where the finding names nothing; `None` when nobody wrote it.
    """
    named = (finding.field, *(() if finding.asked_by is None else (finding.asked_by,)))
    found = itertools.chain.from_iterable(_written(finding.stage, name, context) for name in named)
    chosen = context.settings.fields.get(_CHOICE)
    return next((given.origin for given in (*found, chosen) if given is not None), None)


def _written(
    stage: str, name: str, context: RuleContext
) -> Iterator[Sourced[Any] | AxisSettings | None]:
    """Look a name up among all that a finding may name, the nearest first."""
    said = next((each for each in context.settings.stages if each.name == stage), None)
    if said is not None:
        yield said.fields.get(name)
        yield _part(said, name)
        yield _edge_option(name, context)
        yield _axis(said, name)
    yield context.settings.fields.get(name)


def _part(settings: StageSettings, name: str) -> Sourced[object] | None:
    given = settings.fields.get("additional_config")
    return None if given is None else given.parts.get(name)


def _axis(settings: StageSettings, name: str) -> Sourced[int] | AxisSettings | None:
    axis = settings.axes.get(name)
    return axis if axis is None or axis.size is None else axis.size


def _edge_option(name: str, context: RuleContext) -> Sourced[object] | None:
    """Find an option of the stage's edges in the connectors that carry them."""
    connectors = context.settings.connectors.values()
    found = [each.edge_options.get(name) for each in connectors]
    return next((each for each in found if each is not None), None)
