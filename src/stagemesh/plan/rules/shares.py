"""Shares of device memory: what all ranks on a device may use together, and what a stage gets.

Bytes are checked where stages are placed; there a share counts with all that it may take. Here are
the shares themselves, which need no bytes, and what no estimate covers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from stagemesh.config.settings import StageSettings
from stagemesh.plan.cost.estimate import stage_cost
from stagemesh.plan.declared import SAMPLING
from stagemesh.plan.room import exceeds, shares_text
from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.setup import SharePlan
from stagemesh.plan.stage import StageDraft
from stagemesh.plan.words import size_text
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.origin import Origin

SHARE: Final = "gpu_memory_utilization"
_CACHE: Final = "kv_cache_memory_bytes"
_TOGETHER: Final = "max_num_seqs"


def share_of(draft: StageDraft) -> float | None:
    """Return the share of a device that one rank of a stage may use, if it has one."""
    given = draft.choice.value(SHARE)
    return given if isinstance(given, float) else None


def amount_origin(draft: StageDraft, said: StageSettings) -> Origin | None:
    """Return where it was said what a rank of a stage keeps beside its weights, whatever its share.

    That is its cache, or its results: their size and number count where the engine says so.
    """
    choice = draft.choice
    sized_by = frozenset[str]() if choice.spec is None else choice.spec.sized_by
    together = choice.value(_TOGETHER)
    names = [_CACHE] if choice.value(_CACHE) else []
    if sized_by and isinstance(together, int) and together > 1:
        names.append(_TOGETHER)
    given = [said.fields[name].origin for name in names if name in said.fields]
    params = said.fields.get(SAMPLING)
    if params is not None:
        given += [params.at(name) for name in draft.sampling if name in sized_by]
    return next(iter(given), None)


def shares(context: RuleContext) -> Ruling:
    """Check the shares of every device and the budget of every stage."""
    memory = context.placement.devices.memory_bytes
    given = {draft.stage_id: share_of(draft) for draft in context.drafts}
    found = list(_too_many(context))
    for draft in context.drafts:
        found += _too_small(context, draft, memory)
        found += _too_large_cache(context, draft, memory)
    return Ruling(
        diagnostics=tuple(found),
        skipped=tuple(_unknown_neighbours(context)),
        shares={
            stage: SharePlan(
                share=share, memory_bytes=None if memory is None else int(share * memory)
            )
            for stage, share in given.items()
            if share is not None
        },
    )


def _on_devices(context: RuleContext) -> Mapping[int, Sequence[StageDraft]]:
    """Return the stages on every device, one for each rank."""
    found: dict[int, list[StageDraft]] = {}
    for draft in context.drafts:
        for replica in context.placement.replicas.get(draft.stage_id, ()):
            for device in replica:
                found.setdefault(device, []).append(draft)
    return dict(sorted(found.items()))


def _too_many(context: RuleContext) -> Iterator[Diagnostic]:
    """Devices of which more than all is given away; every set of stages is told once."""
    told: set[tuple[int, ...]] = set()
    for device, ranks in _on_devices(context).items():
        ids = tuple(draft.stage_id for draft in ranks)
        total = sum(share_of(draft) or 0.0 for draft in ranks)
        if not exceeds(total) or ids in told:
            continue
        told.add(ids)
        sharing = [draft for draft in ranks if share_of(draft) is not None]
        yield Diagnostic(
            code="PL110",
            message=shares_text(device, total),
            origin=context.origin(sharing[-1], SHARE),
            notes=tuple(
                Note(
                    message=f"`{draft.stage.model_stage}` may use `{share_of(draft):g}`",
                    origin=context.origin(draft, SHARE),
                )
                for draft in sharing
            ),
            help="lower the shares until they add up to `1`, or put the stages on other devices",
        )


def _unknown_neighbours(context: RuleContext) -> Iterator[str]:
    """Stages of which nobody knows what they take beside the share of another."""
    for device, ranks in _on_devices(context).items():
        if all(share_of(draft) is None for draft in ranks):
            continue
        known = context.placement.devices.memory_bytes is not None
        for draft in ranks:
            if share_of(draft) is None and not (known and draft.memory is not None):
                name = draft.stage.model_stage
                yield f"memory of device `{device}`: what `{name}` takes beside shares is not known"


def _too_small(context: RuleContext, draft: StageDraft, memory: int | None) -> Iterator[Diagnostic]:
    """A budget that does not hold what is there before any cache, or beside the cache it was given.

    A cache that takes what is left makes itself fit; one of a given size does not.
    """
    share, estimate, given = share_of(draft), draft.memory, context.given(draft, _CACHE)
    if share is None or memory is None or estimate is None:
        return
    kept = 0 if given is None else estimate.cache
    budget, least = int(share * memory), estimate.total - estimate.cache + kept
    if budget < least <= memory:
        lower = f", lower `{_CACHE}`" if kept else ""
        yield Diagnostic(
            code="PL111",
            message=f"`{draft.stage.model_stage}` may use {size_text(budget)} of a device and needs"
            f" {size_text(least)} {'with its' if kept else 'without'} cache",
            origin=context.origin(draft, SHARE),
            notes=(
                (Note(message=f"the cache takes {size_text(kept)}", origin=given.origin),)
                if given is not None and kept
                else ()
            ),
            help=f"write at least `{math.ceil(least / memory * 100) / 100:g}`{lower}, or spread the"
            " stage over more devices",
        )


def _too_large_cache(
    context: RuleContext, draft: StageDraft, memory: int | None
) -> Iterator[Diagnostic]:
    """A cache that no device can hold beside the rest, where placement knows no bytes to check."""
    cache = draft.choice.value(_CACHE)
    if not isinstance(cache, int) or memory is None or draft.memory is not None:
        return
    least, what = _beside(context, draft, cache)
    if least > memory:
        yield Diagnostic(
            code="PL112",
            message=f"{what} of `{draft.stage.model_stage}` need{'s' if least == cache else ''}"
            f" {size_text(least)}, and a device has {size_text(memory)}",
            origin=context.origin(draft, _CACHE),
            help=f"lower `{_CACHE}`, or spread the stage over more devices",
        )


def _beside(context: RuleContext, draft: StageDraft, cache: int) -> tuple[int, str]:
    """Count a cache with all that is known to lie beside it, and say what that is.

    An engine that refuses its arguments for another reason has its estimate all the same.
    """
    if not draft.is_sound:
        return cache, "the cache"
    estimate = stage_cost(draft.stack, draft.choice, context.devices.each).memory
    if estimate is not None:
        return estimate.total - estimate.cache + cache, "cache, weights and workspace"
    weights = draft.stack.facts.weight_bytes
    if weights is None:
        return cache, "the cache"
    return cache + weights // draft.stack.world, "cache and weights"
