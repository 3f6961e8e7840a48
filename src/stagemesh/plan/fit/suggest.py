"""The nearest layout that fits, for the messages about one that does not.

Nearest is, in this order: smaller sizes of the axes of a stage that cannot be laid out by itself;
devices left to the planner; the best layout that `--fit` finds. Each is tried on the planner.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from stagemesh.config.catalog import Catalog
from stagemesh.config.settings import StageSettings
from stagemesh.plan.build import PlanRequest, build
from stagemesh.plan.export.stage_fields import axis_fields, device_list
from stagemesh.plan.fit.candidates import StageSearch
from stagemesh.plan.fit.layout import DEVICES, Change, Sizes, changed
from stagemesh.plan.fit.search import search
from stagemesh.plan.values import Plan
from stagemesh.spec.diagnostic import Diagnostic

Overrides: TypeAlias = Mapping[str, Mapping[str, object]]
"""Stage fields by stage name."""

_LAYOUT: Final = ("AX021", "AX024", "AX03", "PL01", "PL110", "PL130")
"""Beginnings of the codes that another layout can answer."""
_TRIED: Final = 256
"""Most variants of one stage that are tried."""
_DEVICES: Final = 16
"""Most devices for which `--fit` is asked: a message should not take long."""


def is_about_layout(found: Diagnostic) -> bool:
    """Whether another layout could answer a diagnostic."""
    return found.code.startswith(_LAYOUT)


def with_suggestion(
    diagnostics: Sequence[Diagnostic], request: PlanRequest, catalog: Catalog
) -> tuple[Diagnostic, ...]:
    """Add a layout that would fit to the first error, if layouts are all that is wrong."""
    wrong = [found for found in diagnostics if found.is_error]
    if not wrong or not all(map(is_about_layout, wrong)):
        return tuple(diagnostics)
    overrides = suggest(request, catalog)
    if not overrides:
        return tuple(diagnostics)
    text = f"this would fit: `{set_flags(overrides)}`"
    helped = replace(wrong[0], help="; ".join(filter(None, (wrong[0].help, text))))
    return tuple(helped if found is wrong[0] else found for found in diagnostics)


def set_flags(overrides: Overrides) -> str:
    """Write overrides as they are typed."""
    return " ".join(
        f"--set {stage}.{name}={value if isinstance(value, str) else json.dumps(value)}"
        for stage, fields in overrides.items()
        for name, value in fields.items()
    )


def suggest(request: PlanRequest, catalog: Catalog) -> Overrides | None:
    """Return the overrides that make a layout fit, or `None` when none was found."""
    said = {stage.stage_id: stage for stage in request.settings.stages}
    searches = [
        StageSearch(stage, said[stage.stage_id], request, catalog)
        for stage in request.pipeline.stages
    ]
    for changes in _attempts(searches, said):
        plan = _planned(request, changes, catalog)
        if plan is not None:
            return _sized(changes, plan, catalog)
    return _searched(request, catalog)


# --- nearby layouts -------------------------------------------------------------------------------


def _attempts(
    searches: Sequence[StageSearch], said: Mapping[int, StageSettings]
) -> Iterator[Mapping[int, Change]]:
    """Layouts to try, the nearest first."""
    wrong = [each for each in searches if not each.is_possible({}, freed=False)]
    smaller = _smaller(wrong, freed=False)
    if smaller:
        yield smaller
    listed = [each for each in searches if DEVICES in said[each.stage_id].fields]
    for freed in ([each for each in wrong if each in listed], listed):
        if freed:
            others = _smaller([each for each in wrong if each not in freed], freed=False)
            yield {**others, **_freed(freed, _smaller(freed, freed=True))}
    least = {each.stage_id: Change(sizes=each.least) for each in wrong if each.least}
    yield {**least, **_freed(listed, least)}


def _smaller(stages: Iterable[StageSearch], *, freed: bool) -> Mapping[int, Change]:
    """The nearest smaller layouts of the stages that cannot be laid out by themselves."""
    return {
        stage.stage_id: Change(sizes=sizes)
        for stage in stages
        if not stage.is_possible({}, freed=freed)
        and (sizes := _nearest(stage, freed=freed)) is not None
    }


def _nearest(stage: StageSearch, *, freed: bool) -> Sizes | None:
    """The possible layout with fewest changes, then with most ranks, then the fastest."""
    tried = itertools.islice(stage.smaller(), _TRIED)
    for _, alike in itertools.groupby(tried, key=stage.distance):
        possible = [sizes for sizes in alike if stage.is_possible(sizes, freed=freed)]
        if possible:
            return min(possible, key=stage.latency)
    return None


def _freed(stages: Iterable[StageSearch], sized: Mapping[int, Change]) -> Mapping[int, Change]:
    """The same sizes, with all devices left to the planner."""
    return {
        each.stage_id: replace(sized.get(each.stage_id, Change()), freed=True) for each in stages
    }


def _planned(request: PlanRequest, changes: Mapping[int, Change], catalog: Catalog) -> Plan | None:
    settings = changed(request.settings, changes)
    return build(replace(request, settings=settings), catalog).plan


def _sized(changes: Mapping[int, Change], plan: Plan, catalog: Catalog) -> Overrides | None:
    """Say changes as stage fields; `None` when no field says one of the sizes."""
    overrides: dict[str, Mapping[str, object]] = {}
    for stage_id, change in changes.items():
        stage = plan.stage(stage_id)
        fields: dict[str, object] = {}
        for axis in stage.axes:
            if axis.axis in change.sizes:
                fields |= axis_fields(axis, catalog.axes[axis.axis]).fields
        if change.freed:
            fields[DEVICES] = device_list(stage)
        overrides[stage.name] = fields
    return overrides


def _searched(request: PlanRequest, catalog: Catalog) -> Overrides | None:
    """Say the best layout that `--fit` finds, every stage placed anew."""
    said = {stage.stage_id: stage for stage in request.settings.stages}
    freed = {stage_id: Change(freed=True) for stage_id in said if DEVICES in said[stage_id].fields}
    if request.devices.count is None or request.devices.count > _DEVICES:
        return None
    anew = replace(request, settings=changed(request.settings, freed))
    found = search(anew, catalog, 1).choices
    if not found:
        return None
    plan, overrides, is_whole = found[0].plan, {}, True
    for stage in plan.stages:
        added = [axis for axis in stage.axes if axis.axis not in said[stage.stage_id].axes]
        written = [axis_fields(axis, catalog.axes[axis.axis]) for axis in added]
        is_whole &= not any(each.unsaid for each in written)
        fields = {name: value for each in written for name, value in each.fields.items()}
        if stage.stage_id in freed:
            fields[DEVICES] = device_list(stage)
        if fields:
            overrides[stage.name] = fields
    return overrides if is_whole else None
