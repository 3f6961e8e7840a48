"""The layouts near to one that does not fit, and which of them is the nearest.

Some stages are freed of the devices that they list, and those that still cannot be laid out by
themselves get the nearest smaller sizes. Every choice of freed stages is tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.settings import Sourced, StageSettings
from stagemesh.plan.build import PlanRequest, build
from stagemesh.plan.fit.candidates import Candidate, StageSearch
from stagemesh.plan.fit.layout import Change, Sizes, changed
from stagemesh.plan.pins import listed_devices
from stagemesh.plan.values import Plan
from stagemesh.spec.frozen import frozen

_TRIED: Final = 256
"""Most sizes of one stage that are tried."""
_BUILT: Final = 48
"""Most layouts of smaller sizes that are built."""
_TOGETHER_TRIED: Final = 600
"""Most combinations of smaller sizes of the stages that are looked at."""
_CHOSEN: Final = 4
"""Most stages with devices of which every choice is freed; of more, all or none."""
_TOGETHER: Final = 2
"""What it costs to put together stages that were apart, where giving up a size costs 1."""


@frozen
class Near:
    """A layout that can be planned."""

    changes: Mapping[int, Change]
    """What is different, by stage id."""
    plan: Plan
    """What it gives."""


def nearby(
    request: PlanRequest, catalog: Catalog, larger: Mapping[int, Sizes] | None = None
) -> list[Near]:
    """Return the layouts that the planner takes, the nearest first.

    `larger` gives the sizes of stages that cannot be laid out without further axes.
    """
    stages = _stages(request, catalog, larger)
    tried = (_built(changes, request, catalog) for changes in _attempts(stages))
    return sorted(filter(None, tried), key=lambda near: _distance(near, stages))


def thinned(request: PlanRequest, catalog: Catalog) -> list[Near]:
    """Return a layout of smaller sizes for stages that fit alone and crowd each other together."""
    stages = _stages(request, catalog)
    for changes in itertools.islice(_thinner(stages, request), _BUILT):
        near = _built(changes, request, catalog)
        if near is not None:
            return [near]
    return []


def grown(request: PlanRequest, catalog: Catalog) -> Mapping[int, Sizes]:
    """Return the fewest ranks of every stage that cannot be laid out without further axes."""
    said = {stage.stage_id: stage for stage in request.settings.stages}
    larger: dict[int, Sizes] = {}
    for stage in request.pipeline.stages:
        search = StageSearch(stage, said[stage.stage_id], request, catalog)
        if search.is_possible({}, freed=False):
            continue
        found = search.all(request.devices.count or 1)
        if found:
            best = min(found, key=lambda each: (each.world, search.latency(each.sizes)))
            larger[stage.stage_id] = best.sizes
    return larger


def _stages(
    request: PlanRequest, catalog: Catalog, larger: Mapping[int, Sizes] | None = None
) -> list[_Stage]:
    said = {stage.stage_id: stage for stage in request.settings.stages}
    return [
        _Stage(
            StageSearch(stage, said[stage.stage_id], request, catalog),
            said[stage.stage_id],
            (larger or {}).get(stage.stage_id, {}),
        )
        for stage in request.pipeline.stages
    ]


def _built(changes: Mapping[int, Change], request: PlanRequest, catalog: Catalog) -> Near | None:
    settings = changed(request.settings, changes, catalog.axes)
    plan = build(replace(request, settings=settings), catalog).plan
    return None if plan is None else Near(changes=changes, plan=plan)


class _Stage:
    """One stage: the smaller sizes that it can have, and the devices that it lists."""

    def __init__(self, search: StageSearch, said: StageSettings, larger: Sizes) -> None:
        self._search = search
        self._larger = larger
        self._sizes: dict[bool, Sizes | None] = {}
        self.stage_id = search.stage_id
        self.least = search.least
        self.listed: Sourced[str] | None = listed_devices(said)

    @property
    def is_users(self) -> bool:
        """Whether its devices are not just the model's own default."""
        return self.listed is not None and not self.listed.origin.shipped

    @property
    def devices(self) -> frozenset[int]:
        """The devices that it lists, as far as they are numbers of devices."""
        words = [] if self.listed is None else self.listed.value.split(",")
        return frozenset(int(word) for word in words if len(word.strip()) < len(str(10**6)))

    def sizes(self, *, freed: bool) -> Sizes | None:
        """The nearest sizes with which it can be laid out alone; `None` when none were found.

        Nearest is with fewest changes, then with most ranks, then the fastest.
        """
        if freed not in self._sizes:
            self._sizes[freed] = self._nearest(freed=freed)
        return self._sizes[freed]

    def thinner(self, most: int) -> list[Candidate]:
        """The layouts of the nearest and of smaller sizes, of which each can be laid out alone."""
        sizes = self.sizes(freed=True)
        if sizes is None:
            return []
        tried = itertools.islice(itertools.chain([sizes], self._search.smaller()), _TRIED)
        found = (self._search.candidate(each) for each in tried)
        return list(itertools.islice(filter(None, found), most))

    def _nearest(self, *, freed: bool) -> Sizes | None:
        if self._search.is_possible(self._larger, freed=freed):
            return self._larger
        tried = itertools.islice(self._search.smaller(), _TRIED)
        for _, alike in itertools.groupby(tried, key=self._search.distance):
            possible = [sizes for sizes in alike if self._search.is_possible(sizes, freed=freed)]
            if possible:
                return min(possible, key=self._search.latency)
        return None


def _attempts(stages: Sequence[_Stage]) -> Iterator[Mapping[int, Change]]:
    """Layouts to try: for every choice of freed stages, and at last all that is wrong at 1."""
    listed = [stage for stage in reversed(stages) if stage.listed is not None]
    for freed in _choices(listed):
        changes = _changes(stages, freed)
        if changes:
            yield changes
    wrong = [stage for stage in stages if stage.sizes(freed=False) != {}]
    yield {
        stage.stage_id: Change(
            sizes=stage.least if stage in wrong else {}, freed=stage.listed is not None
        )
        for stage in stages
        if (stage in wrong and stage.least) or stage.listed is not None
    }


def _thinner(stages: Sequence[_Stage], request: PlanRequest) -> Iterator[Mapping[int, Change]]:
    """Smaller sizes of all stages for which there is room by the sums, the nearest first.

    At first every stage stays where its devices are listed, and then none does.
    """
    most = max(2, int(_TOGETHER_TRIED ** (1 / len(stages))))
    memory, count = request.devices.each.memory_bytes, request.devices.count or 1
    chosen = [
        each
        for each in itertools.product(*(stage.thinner(most) for stage in stages))
        if memory is None or sum(one.rank_bytes * one.ranks for one in each) <= memory * count
    ]
    chosen.sort(
        key=lambda each: (sum(len(one.sizes) for one in each), -sum(one.ranks for one in each))
    )
    is_listed = any(stage.is_users for stage in stages)
    for freed, each in itertools.product((False, True) if is_listed else (False,), chosen):
        yield {
            stage.stage_id: Change(sizes=one.sizes, freed=freed and stage.listed is not None)
            for stage, one in zip(stages, each, strict=True)
            if one.sizes or (freed and stage.listed is not None)
        }


def _choices(listed: Sequence[_Stage]) -> Iterator[Sequence[_Stage]]:
    """Every choice of stages, few first; those at the end of the pipeline before the others."""
    counts: Iterable[int] = range(len(listed) + 1)
    if len(listed) > _CHOSEN:
        counts = (0, 1, len(listed))
    for count in counts:
        yield from itertools.combinations(listed, count)


def _changes(stages: Sequence[_Stage], freed: Sequence[_Stage]) -> Mapping[int, Change]:
    """Free some stages, and make smaller what cannot be laid out all the same."""
    changes: dict[int, Change] = {}
    for stage in stages:
        is_freed = stage in freed
        sizes = stage.sizes(freed=is_freed)
        if sizes or is_freed:
            changes[stage.stage_id] = Change(sizes=sizes or {}, freed=is_freed)
    return changes


# --- how near it is -------------------------------------------------------------------------------


def _distance(near: Near, stages: Sequence[_Stage]) -> tuple[int, ...]:
    """What is given up: sizes and devices of one's own, then places, then ranks."""
    moved = [stage for stage in stages if _is_freed(near, stage)]
    sizes = sum(len(change.sizes) for change in near.changes.values())
    together = sum(
        _is_new(near.plan, one, other)
        for one, other in itertools.combinations(stages, 2)
        if (one in moved and one.is_users) or (other in moved and other.is_users)
    )
    return (
        sizes + _TOGETHER * together,
        sum(stage.is_users for stage in moved),
        -sum(stage.world_size * len(stage.replicas) for stage in near.plan.stages),
        len(moved),
    )


def _is_freed(near: Near, stage: _Stage) -> bool:
    return near.changes.get(stage.stage_id, Change()).freed


def _is_new(plan: Plan, one: _Stage, other: _Stage) -> bool:
    """Whether two stages share a device that did not before."""
    is_shared = bool(_devices(plan, one) & _devices(plan, other))
    return is_shared and not one.devices & other.devices


def _devices(plan: Plan, stage: _Stage) -> frozenset[int]:
    replicas = plan.stage(stage.stage_id).replicas
    return frozenset(rank.device for replica in replicas for rank in replica.ranks)
