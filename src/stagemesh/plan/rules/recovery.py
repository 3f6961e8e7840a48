"""What happens when a replica of a stage dies or hangs: as was said, or as is usual."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Final, cast

from stagemesh.config.kind_fields import Recovery
from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.plan.stage import StageDraft
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity

_RESTART: Final = "restart"
_LIMITS: Final = ("max_restarts", "restart_window", "restart_delay")
"""Fields that say how often and how soon, and nothing where there is no restart."""


def recovery(context: RuleContext) -> Ruling:
    """Decide it for every stage."""
    chosen = {draft.stage_id: _chosen(context, draft) for draft in context.drafts}
    found = [
        finding
        for draft in context.drafts
        if chosen[draft.stage_id].restart == "never"
        for finding in _without_effect(context, draft)
    ]
    return Ruling(diagnostics=tuple(found), recoveries=chosen)


def _chosen(context: RuleContext, draft: StageDraft) -> RecoveryPlan:
    given: Mapping[str, object] = {
        item.name: said.value
        for item in fields(Recovery)
        if (said := context.given(draft, item.name)) is not None
    }
    return replace(RecoveryPlan(), **cast("Mapping[str, Any]", given))


def _without_effect(context: RuleContext, draft: StageDraft) -> Iterator[Diagnostic]:
    """Warn of limits of restarts that never happen, once for a stage."""
    given = [(name, said) for name in _LIMITS if (said := context.given(draft, name)) is not None]
    if given:
        (name, said), *others = given
        never = Note(
            message=f"`{_RESTART}: never` is written here", origin=context.origin(draft, _RESTART)
        )
        further = (Note(message=f"nor has `{each}`", origin=also.origin) for each, also in others)
        yield Diagnostic(
            code="PL140",
            severity=Severity.WARNING,
            message=f"`{draft.stage.model_stage}` is never started again: `{name}` has no effect",
            origin=said.origin,
            notes=(never, *further),
            help=f"write `{_RESTART}: on_failure`, or leave the limits out",
        )
