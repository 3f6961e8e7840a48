"""Devices that ship with a model give way to the user's layout; those that users list bind.

What a shipped deploy file lists is one arrangement of all stages, for the layout that ships with
it. It is tried first. Where the layout that is wanted needs another number of devices, where a
device is not there, or where there is no room, the arrangement gives way as a whole: its stages are
placed as if nobody had listed devices for them. Wherever that makes a difference, the plan says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from stagemesh.config.settings import Sourced, StageSettings
from stagemesh.plan.devices import Devices
from stagemesh.plan.place import Placement, place
from stagemesh.plan.provenance import PLACEMENT
from stagemesh.plan.report import Report
from stagemesh.plan.room import exceeds, shares_text
from stagemesh.plan.stack import Stack
from stagemesh.plan.values import StagePlan, ValuePlan
from stagemesh.plan.wish import Wish
from stagemesh.spec.origin import Layer

DEVICES: Final = "devices"
"""The stage field that lists devices."""


def listed_devices(settings: StageSettings) -> Sourced[str] | None:
    """Return the devices that are listed for a stage; `null` lists none."""
    given = settings.fields.get(DEVICES)
    if given is None or given.value is None:
        return None
    return cast("Sourced[str]", given)


def bound_devices(settings: StageSettings) -> Sourced[str] | None:
    """Return the devices that a stage is bound to: those that do not ship with the model."""
    listed = listed_devices(settings)
    return None if listed is None or listed.origin.shipped else listed


def is_as_shipped(stack: Stack) -> bool:
    """Whether nobody but the model itself says how a stage is laid out."""
    origins = [item.origin for item in stack.axes]
    return all(origin.shipped or origin.layer <= Layer.PIPELINE for origin in origins)


def arrange(wishes: Sequence[Wish], devices: Devices, report: Report) -> Placement:
    """Place every stage, with the devices that ship where they can be had; report what fails."""
    if not any(map(_is_shipped, wishes)):
        return place(wishes, devices, report)
    found = Report()
    kept = place(wishes, devices, found)
    obstacle = _obstacle(kept, wishes, found)
    if obstacle is None:
        return kept
    freed = [replace(wish, listed=None) if _is_shipped(wish) else wish for wish in wishes]
    found_freely = Report()
    free = place(freed, devices, found_freely)
    if found_freely.failed and len(kept.replicas) == len(wishes):
        report.add(*found.diagnostics)  # there is no room either way: say it of what was listed
        return kept
    report.add(*found_freely.diagnostics)
    moved = [
        wish.stage_id
        for wish in filter(_is_shipped, wishes)
        if kept.replicas.get(wish.stage_id) != free.replicas.get(wish.stage_id)
    ]
    return replace(free, moved=dict.fromkeys(moved, obstacle))


def with_word(stage: StagePlan, moved: Mapping[int, str]) -> StagePlan:
    """Record for a stage that its devices gave way, and why."""
    if stage.stage_id not in moved:
        return stage
    listed = stage.values[DEVICES]
    word = ValuePlan(
        value=None,
        layer=PLACEMENT,
        origin=moved[stage.stage_id],
        superseded=(replace(listed, superseded=()), *listed.superseded),
        clears=True,
    )
    return replace(stage, values={**stage.values, DEVICES: word})


def _is_shipped(wish: Wish) -> bool:
    return wish.listed is not None and wish.listed.origin.shipped


def _obstacle(placement: Placement, wishes: Sequence[Wish], found: Report) -> str | None:
    """Say what stands against a placement first, shares of memory included."""
    if found.failed:
        return found.diagnostics[0].message
    shares: dict[int, float] = {}
    for wish in wishes:
        for device in itertools.chain.from_iterable(placement.replicas[wish.stage_id]):
            shares[device] = shares.get(device, 0.0) + wish.shares
    full = (shares_text(device, share) for device, share in shares.items() if exceeds(share))
    return next(full, None)
