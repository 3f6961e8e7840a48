"""The best few layouts of all stages together, ranked by the estimate of speed.

First every stage alone: the fastest layouts for each number of ranks. Then all stages together: the
stage that is busiest gets further copies as long as devices are left. The best of these are built
as real plans, and ranked by where the planner placed them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, TypeAlias

from stagemesh.config.catalog import Catalog
from stagemesh.plan.build import PlanRequest, build
from stagemesh.plan.checks import MAX_RANKS
from stagemesh.plan.colocate import hosts_of, named_of
from stagemesh.plan.fit.candidates import Candidate, StageSearch
from stagemesh.plan.fit.layout import Change, changed
from stagemesh.plan.fit.select import lightest, worthwhile
from stagemesh.plan.values import Plan
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import ExecutionType

_TOGETHER: Final = 600
"""Most combinations of layouts of single stages that are looked at."""
_BUILT: Final = 32
"""Most of them that are built."""
_DIGITS: Final = 6
"""Digits to which estimates are compared, so that rounding decides nothing."""
_HALVINGS: Final = 32
"""How often the limit of how busy devices may be is made closer, before copies come singly."""


@frozen
class Speed:
    """Estimated seconds of one nominal request."""

    latency: float
    """From its beginning to its end."""
    busy: float
    """Of the device that is busiest with it."""


@frozen
class Choice:
    """One layout of all stages."""

    plan: Plan
    """The plan that it gives."""
    candidates: Mapping[int, Candidate]
    """The layout of one copy of each stage, by its id."""
    speed: Speed
    """Its estimate."""


@frozen
class Found:
    """What a search brought."""

    choices: tuple[Choice, ...]
    """The best, first the one to take."""
    baseline: Speed
    """The layout as it was given, however much memory it takes."""
    by_latency: bool
    """Whether short answers come first, rather than many."""
    tried: int
    """Layouts of single stages that the checks allow."""
    unknown: tuple[str, ...]
    """Stages about whose speed nothing is known."""


@frozen
class _Part:
    """One stage of a combination."""

    search: StageSearch
    """The stage."""
    candidate: Candidate
    """The layout of one copy."""
    copies: int
    """Copies besides those that were given."""
    host: int
    """The stage in whose processes it runs; itself, where it has some of its own."""

    @property
    def ranks(self) -> int:
        """Devices, if none is shared."""
        return self.candidate.world * self.candidate.num_replicas * self.copies

    @property
    def own_ranks(self) -> int:
        """Devices, if none is shared but with the host."""
        return self.ranks if self.host == self.search.stage_id else 0

    @property
    def latency(self) -> float:
        """Seconds of one request."""
        return 0.0 if self.candidate.time is None else self.candidate.time.latency

    @property
    def busy(self) -> float:
        """Seconds of each of its devices."""
        time = self.candidate.time
        return 0.0 if time is None else time.busy / self.copies

    @property
    def change(self) -> Change:
        """What it changes of the settings."""
        sizes = dict(self.candidate.sizes)
        if self.copies > 1 and self.search.copying is not None:
            sizes[self.search.copying] = self.copies
        return Change(sizes=sizes)


_Parts: TypeAlias = Sequence[_Part]


def search(request: PlanRequest, catalog: Catalog, best: int, *, copies: bool = True) -> Found:
    """Find the best layouts on the devices of the request; the axes that were given stay.

    Without `copies` no stage gets more of them, whatever devices are left.
    """
    said = {stage.stage_id: stage for stage in request.settings.stages}
    declared = request.pipeline.stages
    stages = [StageSearch(each, said[each.stage_id], request, catalog) for each in declared]
    hosts = hosts_of(named_of(request.pipeline, request.settings))
    by_latency = any(each.execution_type is ExecutionType.DIFFUSION for each in declared)
    most = request.devices.count or 1
    each = max(2, int(_TOGETHER ** (1 / len(stages))))
    tried, built = 0, []
    for saving in (False, True):
        allowed = [
            _together(stage.all(most, saving=saving), stage.stage_id, hosts) for stage in stages
        ]
        tried = sum(map(len, allowed))
        few = [
            lightest(found, each) if saving else worthwhile(found, each, by_latency=by_latency)
            for found in allowed
        ]
        combined = [
            _with_copies(parts, most) if copies else parts
            for parts in _combinations(stages, few, hosts)
            if _has_room(parts, request.devices.each.memory_bytes, most)
        ]
        combined.sort(key=lambda parts: _key(_bound(parts, most), parts, by_latency=by_latency))
        built = list(_built(combined[:_BUILT], request, catalog))
        if built:
            break
    built.sort(key=lambda pair: _key(pair[0].speed, pair[1], by_latency=by_latency))
    return Found(
        choices=tuple(choice for choice, _ in built[:best]),
        baseline=_baseline(stages, request, catalog),
        by_latency=by_latency,
        tried=tried,
        unknown=tuple(_unknown(stages, hosts)),
    )


def _unknown(stages: Sequence[StageSearch], hosts: Mapping[int, int]) -> Iterator[str]:
    """Name stages about whose speed nothing is known, nor about any in the same processes."""
    known = {
        hosts.get(stage.stage_id, stage.stage_id)
        for stage in stages
        if stage.as_given.time is not None
    }
    for stage in stages:
        if hosts.get(stage.stage_id, stage.stage_id) not in known:
            yield stage.name


def has_layouts(request: PlanRequest, catalog: Catalog) -> bool:
    """Whether every stage has a layout on so many devices, however large they were."""
    endless = replace(request, devices=replace(request.devices, memory_bytes=None))
    most = endless.devices.count or 1
    said = {stage.stage_id: stage for stage in request.settings.stages}
    return all(
        StageSearch(stage, said[stage.stage_id], endless, catalog).has_any(most)
        for stage in request.pipeline.stages
    )


def _together(
    found: Sequence[Candidate], stage_id: int, hosts: Mapping[int, int]
) -> Sequence[Candidate]:
    """Leave out what does not fit in the process of another stage: more than one rank."""
    if stage_id not in hosts and stage_id not in hosts.values():
        return found
    return [candidate for candidate in found if candidate.world == 1]


def _combinations(
    stages: Sequence[StageSearch], few: Sequence[Sequence[Candidate]], hosts: Mapping[int, int]
) -> Iterator[_Parts]:
    """Combine the layouts of single stages; those in the same processes have as many copies."""
    for chosen in itertools.product(*few):
        parts = [
            _Part(
                search=stage,
                candidate=candidate,
                copies=stage.copies(candidate),
                host=hosts.get(stage.stage_id, stage.stage_id),
            )
            for stage, candidate in zip(stages, chosen, strict=True)
        ]
        copies: dict[int, set[int]] = {}
        for part in parts:
            copies.setdefault(part.host, set()).add(part.ranks)
        if all(len(copies[host]) == 1 for host in hosts.values()):
            yield parts


def _has_room(parts: _Parts, room: int | None, most: int) -> bool:
    """Whether all ranks could lie on the devices, as far as sums can tell."""
    needed = sum(part.candidate.rank_bytes * part.ranks for part in parts)
    return room is None or needed <= room * most


def _with_copies(parts: _Parts, most: int) -> _Parts:
    """Give the busiest processes one more copy, as long as there are devices for it."""
    staying = {part.host for part in parts if not part.search.grows}
    grown = _nearly_grown(parts, most, staying)
    while True:
        busy = _busy(grown)
        busiest = max(busy, key=lambda host: (busy[host], -host))
        further = [
            replace(part, copies=part.copies + 1) if part.host == busiest else part
            for part in grown
        ]
        if not busy[busiest] or busiest in staying or not _are_few(further, most):
            return grown
        grown = further


def _nearly_grown(parts: _Parts, most: int, staying: AbstractSet[int]) -> _Parts:
    """Give at once the copies by which nothing is busier than a limit, the lowest possible.

    One more at a time comes to the same, in as many steps as there are devices.
    """
    busy, nearly = _busy(parts), parts
    low = max((busy[host] for host in staying), default=0.0)
    high = max(busy.values())
    for _ in range(_HALVINGS if high > low else 0):
        limit = (low + high) / 2
        copies = {host: math.ceil(busy[host] / limit) for host in busy.keys() - staying}
        enough = [
            replace(part, copies=max(copies.get(part.host, 0), part.copies)) for part in parts
        ]
        if _are_few(enough, most):
            high, nearly = limit, enough
        else:
            low = limit
    return nearly


def _busy(parts: _Parts) -> dict[int, float]:
    """Seconds that each device of a process is busy, by the stage whose process it is."""
    busy: dict[int, float] = {}
    for part in parts:
        busy[part.host] = busy.get(part.host, 0.0) + part.busy
    return busy


def _are_few(parts: _Parts, most: int) -> bool:
    """Whether there are devices for all, and no stage gets more ranks than one may have."""
    own = sum(part.own_ranks for part in parts)
    return own <= most and all(part.ranks <= MAX_RANKS for part in parts)


def _bound(parts: _Parts, most: int) -> Speed:
    """Estimate the speed if all devices were equally busy, where stages have to share them."""
    spread = sum(part.busy * part.ranks for part in parts) / most
    return Speed(
        latency=sum(part.latency for part in parts),
        busy=max(spread, *(part.busy for part in parts)),
    )


def _built(
    combined: Sequence[_Parts], request: PlanRequest, catalog: Catalog
) -> Iterator[tuple[Choice, _Parts]]:
    """Plan each combination, and keep those that the planner takes."""
    for parts in combined:
        changes = {part.search.stage_id: part.change for part in parts}
        again = replace(request, settings=changed(request.settings, changes, catalog.axes))
        plan = build(again, catalog).plan
        if plan is not None:
            speed = _placed_speed(parts, plan)
            candidates = {part.search.stage_id: part.candidate for part in parts}
            yield Choice(plan=plan, candidates=candidates, speed=speed), parts


def _placed_speed(parts: _Parts, plan: Plan) -> Speed:
    """Estimate the speed of a plan: a device is busy with all stages that lie on it."""
    load: dict[int, float] = {}
    for part in parts:
        for replica in plan.stage(part.search.stage_id).replicas:
            for rank in replica.ranks:
                load[rank.device] = load.get(rank.device, 0.0) + part.busy
    return Speed(latency=sum(part.latency for part in parts), busy=max(load.values()))


def _baseline(stages: Sequence[StageSearch], request: PlanRequest, catalog: Catalog) -> Speed:
    """Estimate the layout as it was given, even where it takes more memory than there is."""
    parts = [
        _Part(search=stage, candidate=stage.as_given, copies=1, host=stage.stage_id)
        for stage in stages
    ]
    plan = build(request, catalog).plan
    if plan is None:
        return _bound(parts, max(sum(part.ranks for part in parts), request.devices.count or 1))
    return _placed_speed(parts, plan)


def _key(speed: Speed, parts: _Parts, *, by_latency: bool) -> tuple[object, ...]:
    """Order layouts: the better estimate first, then fewer ranks, fewer axes, and their names."""
    estimates = (_rounded(speed.latency), _rounded(speed.busy))
    return (
        *(estimates if by_latency else reversed(estimates)),
        sum(part.ranks for part in parts),
        sum(len(part.candidate.sizes) for part in parts),
        tuple(tuple(sorted(part.candidate.sizes.items())) for part in parts),
    )


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.{_DIGITS}g}")
