"""The planner's rules about a whole configuration, as far as a file decides them by itself.

What is told here no further file, flag or device mends, unless it takes the place of what the file
says. A missing word may be added, ranks and replicas may become more: so a list of devices of a
stage with several ranks is only wrong where whole replicas can never fill it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.settings import Settings
from stagemesh.plan.devices import ANY_DEVICES
from stagemesh.plan.pins import bound_devices
from stagemesh.plan.place import Placement, place_listed
from stagemesh.plan.report import Report
from stagemesh.plan.rules.colocated import colocated
from stagemesh.plan.rules.context import Rule, RuleContext
from stagemesh.plan.rules.endpoints import endpoints
from stagemesh.plan.rules.executor import executor
from stagemesh.plan.rules.kernels import kernels
from stagemesh.plan.rules.numa import entries_of, numa
from stagemesh.plan.rules.session import has_no_effect_yet, session
from stagemesh.plan.stack import size_notes
from stagemesh.plan.stage import StageDraft
from stagemesh.plan.values import EdgePlan
from stagemesh.plan.wish import Wish
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.pipeline import PipelineConfig

_RULES: Final[tuple[Rule, ...]] = (session, kernels, executor, numa, endpoints, colocated)
_LASTING: Final = frozenset(
    {
        "PL070",
        "PL071",
        "PL073",
        "PL076",
        "PL078",
        "PL089",
        "PL095",
        "PL096",
        "PL100",
        "PL101",
        "PL102",
        "PL104",
        "PL105",
        "PL113",
        "PL116",
        "PL117",
        "PL140",
        "PL141",
        "PL142",
    }
)
"""What those rules say that nothing further could make right."""
_WRONG_COUNT: Final = "PL010"
_WRONG_ENTRIES: Final = "PL104"
_IDLE_SECTION: Final = "PL071"


def context_of(
    pipeline: PipelineConfig,
    settings: Settings,
    catalog: Catalog,
    drafts: tuple[StageDraft, ...],
    edges: tuple[EdgePlan, ...],
) -> RuleContext:
    """Return what the rules look at; nothing is placed, for nobody said on which devices."""
    return RuleContext(
        pipeline=pipeline,
        settings=settings,
        drafts=drafts,
        placement=Placement(replicas={}, devices=ANY_DEVICES.each),
        edges=edges,
        devices=ANY_DEVICES,
        catalog=catalog,
        async_chunk=any(edge.chunked for edge in edges),
    )


def lasting_rules(context: RuleContext) -> Iterator[Diagnostic]:
    """Tell what stands against a file whatever else is given beside it."""
    for draft in context.drafts:
        yield from _listed(context, draft)
    growing = {
        given.origin
        for draft in context.drafts
        for given in entries_of(context, draft).values()
        if len(given.value) % draft.stack.world == 0
    }
    for rule in _RULES:
        for found in rule(context).diagnostics:
            if (
                found.code not in _LASTING
                or (found.code == _WRONG_ENTRIES and found.origin in growing)
                or (found.code == _IDLE_SECTION and has_no_effect_yet(context))
            ):
                continue
            yield found


def _listed(context: RuleContext, draft: StageDraft) -> Iterator[Diagnostic]:
    """Tell what is wrong with the devices of a stage, if anybody but the model lists some."""
    listed = bound_devices(context.said(draft))
    if listed is None or not draft.is_sound:
        return
    stack, report = draft.stack, Report()
    wish = Wish(
        stage_id=draft.stage_id,
        stage=stack.stage.model_stage,
        world=stack.world,
        num_replicas=stack.num_replicas,
        listed=listed,
        rank_bytes=None,
        notes=tuple(size_notes(stack)),
    )
    place_listed(wish, listed, ANY_DEVICES, report)
    can_grow = len(listed.value.split(",")) % stack.world == 0
    for found in report.diagnostics:
        if found.code != _WRONG_COUNT or not can_grow:
            yield found
