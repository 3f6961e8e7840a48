"""The generation of the model runner of every stage, and where `v2` cannot be taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, cast

from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.rules.session import is_duplex
from stagemesh.plan.setup import Runner
from stagemesh.plan.stage import StageDraft
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity

_FIELD: Final = "model_runner"
_DEFAULT: Final = "v1"
_NEWER: Final = "v2"
_WITHOUT: Final = frozenset({"npu", "xpu"})
"""Platforms on which `v2` is not there, unless a stage of the pipeline says that it is."""


def runner(context: RuleContext) -> Ruling:
    """Decide the runner of every stage."""
    chosen = {draft.stage_id: _chosen(draft) for draft in context.drafts}
    newer = [draft for draft in context.drafts if chosen[draft.stage_id] == _NEWER]
    refused = [draft for draft in newer if _is_refused(context, draft)]
    found = [_not_there(context, draft) for draft in refused]
    found += _without_duplex(context, [draft for draft in newer if draft not in refused])
    if not found:  # else the runner will be another one
        found += _not_native(context, newer)
    return Ruling(diagnostics=tuple(found), runners=chosen)


def _chosen(draft: StageDraft) -> Runner:
    return cast("Runner", draft.choice.value(_FIELD) or _DEFAULT)


def _is_refused(context: RuleContext, draft: StageDraft) -> bool:
    platform = context.devices.platform
    return platform in _WITHOUT and platform not in draft.stage.mrv2_platforms


def _not_there(context: RuleContext, draft: StageDraft) -> Diagnostic:
    platform = context.devices.platform
    return Diagnostic(
        code="PL086",
        message=f"model runner `{_NEWER}` does not run `{draft.stage.model_stage}` on `{platform}`",
        origin=context.origin(draft, _FIELD),
        help=f"write `{_FIELD}: {_DEFAULT}` for it in the section `platforms.{platform}`",
    )


def _without_duplex(context: RuleContext, newer: Sequence[StageDraft]) -> Iterator[Diagnostic]:
    """Full-duplex sessions on stages that take turns only, told once."""
    model = context.pipeline.duplex
    if newer and model is not None and is_duplex(context) and not model.supports_duplex_mrv2:
        yield Diagnostic(
            code="PL088",
            message=f"model runner `{_NEWER}` of `{context.pipeline.model_type}` takes no"
            " full-duplex sessions",
            origin=context.origin(newer[0], _FIELD),
            notes=tuple(_note(context, draft) for draft in newer[1:]),
            help=f"write `{_FIELD}: {_DEFAULT}`, or `session_mode: turn`",
        )


def _not_native(context: RuleContext, newer: Sequence[StageDraft]) -> Iterator[Diagnostic]:
    """Warn once of all stages that keep the older way of handing on."""
    copying = [draft for draft in newer if not draft.stage.supports_native_mrv2_data_plane]
    if copying:
        yield Diagnostic(
            code="PL087",
            severity=Severity.WARNING,
            message=f"`{copying[0].stage.model_stage}` does not hand on natively under model runner"
            f" `{_NEWER}`",
            origin=context.origin(copying[0], _FIELD),
            notes=tuple(_note(context, draft) for draft in copying[1:]),
            help="it keeps the older transport, and nothing says that the two work together",
        )


def _note(context: RuleContext, draft: StageDraft) -> Note:
    message = f"so is `{draft.stage.model_stage}`"
    return Note(message=message, origin=context.origin(draft, _FIELD))
