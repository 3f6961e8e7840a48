"""What happens when a replica of a stage dies or hangs: as was said, or as is usual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, cast

from stagemesh.config.kind_fields import Recovery
from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.plan.stage import StageDraft


def recovery(context: RuleContext) -> Ruling:
    """Decide it for every stage."""
    chosen = {draft.stage_id: _chosen(context, draft) for draft in context.drafts}
    return Ruling(recoveries=chosen)


def _chosen(context: RuleContext, draft: StageDraft) -> RecoveryPlan:
    given: Mapping[str, object] = {
        item.name: said.value
        for item in fields(Recovery)
        if (said := context.given(draft, item.name)) is not None
    }
    return replace(RecoveryPlan(), **cast("Mapping[str, Any]", given))
