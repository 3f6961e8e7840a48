"""The nearest layout that fits, for the messages about one that does not.

Nearest is what keeps the most of what was asked for: sizes before places, and the user's own lists
of devices before those that ship with the model. Devices that are idle are taken before stages are
put together that were apart. Where a stage fits in no such way, axes are added to it: the fewest
ranks that will do, or else what `--fit` finds. Stages that fit alone and crowd each other are made
smaller. Every layout is tried on the planner, and so are the very words of an offer together with
all that was given: what is offered can be had.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from stagemesh.config.catalog import Catalog
from stagemesh.config.settings import AxisSettings
from stagemesh.plan.build import PlanRequest
from stagemesh.plan.export.stage_fields import axis_fields, device_list
from stagemesh.plan.fit.layout import Change, Sizes, changed, parted
from stagemesh.plan.fit.near import Near, grown, nearby, thinned
from stagemesh.plan.fit.search import search
from stagemesh.plan.pins import DEVICES
from stagemesh.plan.values import AxisPlan, StagePlan
from stagemesh.spec.axis import Axis
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.frozen import frozen

Overrides: TypeAlias = Mapping[str, Mapping[str, object]]
"""Stage fields by stage name."""
Works: TypeAlias = Callable[[Overrides], bool]
"""Whether there is a plan once overrides are added to what was given."""

_LAYOUT: Final = ("AX021", "AX024", "AX03", "PL01", "PL110", "PL111", "PL112", "PL130")
"""Beginnings of the codes that another layout can answer."""
_LEFT_OUT: Final = ("AX032",)
"""Codes of axes that no size would help: they say themselves that they are to be left out."""
_DEVICES: Final = 16
"""Most devices for which axes are added: a message should not take long."""
_OFFERS: Final = 8
"""Most offers that are tried, for the same reason."""


def is_about_layout(found: Diagnostic) -> bool:
    """Whether another layout could answer a diagnostic."""
    return found.code.startswith(_LAYOUT)


def with_suggestion(
    diagnostics: Sequence[Diagnostic], request: PlanRequest, catalog: Catalog, works: Works
) -> tuple[Diagnostic, ...]:
    """Add a layout that would fit to the first error, if layouts are all that is wrong."""
    wrong = [found for found in diagnostics if found.is_error]
    if any(found.code in _LEFT_OUT for found in wrong):
        return tuple(diagnostics)
    if not wrong or not all(map(is_about_layout, wrong)):
        return tuple(diagnostics)
    overrides = suggest(request, catalog, works)
    if not overrides:
        return tuple(diagnostics)
    helped = replace(wrong[0], help="; ".join(filter(None, (wrong[0].help, offer_text(overrides)))))
    return tuple(helped if found is wrong[0] else found for found in diagnostics)


def offer_text(overrides: Overrides) -> str:
    """Offer overrides, as they are typed."""
    return f"this would fit: `{set_flags(overrides)}`"


def set_flags(overrides: Overrides) -> str:
    """Write overrides as they are typed."""
    return " ".join(f"--set {shlex.quote(each)}" for each in set_values(overrides))


def set_values(overrides: Overrides) -> tuple[str, ...]:
    """Write overrides as the values of `--set`."""
    return tuple(
        f"{stage}.{name}={value if isinstance(value, str) else json.dumps(value)}"
        for stage, fields in overrides.items()
        for name, value in fields.items()
    )


def suggest(request: PlanRequest, catalog: Catalog, works: Works) -> Overrides | None:
    """Return the overrides that make a layout fit, or `None` when none was found."""
    offers = itertools.islice(_offers(request, catalog), _OFFERS)
    return next(filter(works, offers), None)


def _offers(request: PlanRequest, catalog: Catalog) -> Iterator[Overrides]:
    """Say the layouts that fit, the nearest first, each in every way that there is."""
    for near in _layouts(request, catalog):
        told: list[Overrides] = []
        for way in _WAYS:
            offer = _overrides(near, request, catalog, way)
            if offer is not None and offer not in told:
                told.append(offer)
                yield offer


def _layouts(request: PlanRequest, catalog: Catalog) -> Sequence[Near]:
    """Return the layouts that fit: as they are, with further axes, or all stages made smaller."""
    near = nearby(request, catalog)
    if near or request.devices.count is None:
        return near
    return _with_axes(request, catalog) or thinned(request, catalog)


def _with_axes(request: PlanRequest, catalog: Catalog) -> Sequence[Near]:
    """Return the layouts that fit with further axes."""
    if (request.devices.count or 0) > _DEVICES:
        return []
    freed = {
        stage.stage_id: Change(freed=True)
        for stage in request.settings.stages
        if DEVICES in stage.fields
    }
    anew = replace(request, settings=changed(request.settings, freed, catalog.axes))
    sizes = (larger(anew, catalog) for larger in (grown, _fitted))
    found = (nearby(request, catalog, each) for each in sizes)
    return next(filter(None, found), [])


def _fitted(request: PlanRequest, catalog: Catalog) -> Mapping[int, Sizes]:
    """Sizes of the best layout that `--fit` finds, without further copies."""
    found = search(request, catalog, 1, copies=False).choices
    return {stage: each.sizes for each_of in found for stage, each in each_of.candidates.items()}


@frozen
class _Way:
    """One way to say a layout in stage fields."""

    by_axis: bool
    """Whether a size that was given is said under the name of its axis."""
    is_free: bool
    """Whether stages are left to the planner rather than bound to where it puts them."""


_WAYS: Final = tuple(
    _Way(by_axis=by_axis, is_free=is_free) for is_free in (False, True) for by_axis in (False, True)
)


def _overrides(near: Near, request: PlanRequest, catalog: Catalog, way: _Way) -> Overrides | None:
    """Say changes as stage fields; `None` when no field says one of the sizes."""
    overrides: dict[str, Mapping[str, object]] = {}
    for said in request.settings.stages:
        change, stage = near.changes.get(said.stage_id, Change()), near.plan.stage(said.stage_id)
        fields: dict[str, object] = {}
        for axis in stage.axes:
            sizes = {name: to for name, to in change.sizes.items() if parted(name)[0] == axis.axis}
            declared, given = catalog.axes[axis.axis], said.axes.get(axis.axis)
            written = _axis_fields(axis, declared, given, way) if axis.axis in sizes else {}
            shared = _option_fields(declared, sizes)
            if written is None or shared is None:
                return None
            fields |= {**written, **shared}
        if change.freed:
            fields[DEVICES] = _devices(stage, way)
        if fields:
            overrides[stage.name] = fields
    return overrides


def _devices(stage: StagePlan, way: _Way) -> str | None:
    """Bind a stage to where it was put; a list cannot say that its replicas share a device."""
    used = [rank.device for replica in stage.replicas for rank in replica.ranks]
    return None if way.is_free or len(set(used)) < len(used) else device_list(stage)


def _option_fields(declared: Axis, sizes: Sizes) -> Mapping[str, object] | None:
    """Say numbers of ranks that are options; `None` when no field says one of them."""
    fields = {
        declared.field_for(option): size
        for option, size in ((parted(name)[1], size) for name, size in sizes.items())
        if option
    }
    said: dict[str, object] = {name: size for name, size in fields.items() if name is not None}
    return said if len(said) == len(fields) else None


def _axis_fields(
    axis: AxisPlan, declared: Axis, said: AxisSettings | None, way: _Way
) -> Mapping[str, object] | None:
    """Say an axis anew, or add it; `None` when the fields do not say all of what is added."""
    written = axis_fields(axis, declared)
    if said is None:
        return None if written.unsaid else written.fields
    if declared.switch is not None and axis.size == 1:
        return {declared.switch: False}
    cleared = {
        sets.name: None
        for sets in declared.deploy_fields
        if sets.member in declared.about_size & said.options.keys()
    }
    if way.by_axis:
        return {**cleared, axis.axis: axis.size}
    again = {name: value for name, value in written.fields.items() if name != declared.switch}
    return {**cleared, **again}
