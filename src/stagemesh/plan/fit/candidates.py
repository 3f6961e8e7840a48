"""Every layout of one stage that the planner's checks allow, with its cost.

Tried are the axes that fit the stage, that nobody has fixed, and that are of use to it: those that
bring ranks in all sizes whose product is within the devices, those that lie over ranks in the size
that the ranks give, and options by which ranks share a part to save memory with all of the ranks.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final, cast

from stagemesh.config.catalog import Catalog
from stagemesh.config.settings import StageSettings
from stagemesh.plan.build import PlanRequest
from stagemesh.plan.checks import check_stack
from stagemesh.plan.cost.estimate import StageCost, memory_input, stage_cost
from stagemesh.plan.cost.speed import StageTime, stage_time
from stagemesh.plan.fit.layout import Change, Sizes, changed_stage, shared_by
from stagemesh.plan.fit.sizes import below, is_usual, products, subsets
from stagemesh.plan.params import chosen
from stagemesh.plan.pins import bound_devices
from stagemesh.plan.place import place
from stagemesh.plan.report import Report
from stagemesh.plan.stack import Stack, implied_size, stack_of
from stagemesh.plan.wish import Wish
from stagemesh.spec.axis import SIZE, Axis, WorldRole
from stagemesh.spec.cost import ONLY_SAVE_MEMORY, Part
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import StagePipelineConfig

_GAP: Final = "PL017"
"""Says that devices are left out, which other stages may use."""
_LARGEST: Final = 256
"""Most ranks of a copy that is looked at, unless more were given: a search stays short."""


@frozen
class Candidate:
    """One layout of one copy of a stage."""

    sizes: Sizes
    """Axes and options that get another size than was given, or that are added."""
    world: int
    """Ranks."""
    num_replicas: int
    """Copies that were given."""
    cost: StageCost
    """What a rank holds and sends."""
    time: StageTime | None
    """Speed of one copy, when it can be told."""

    @property
    def ranks(self) -> int:
        """Ranks of all copies that were given."""
        return self.world * self.num_replicas

    @property
    def rank_bytes(self) -> int:
        """Memory of one rank; nothing where it is unknown."""
        return 0 if self.cost.memory is None else self.cost.memory.total


class StageSearch:
    """The layouts of one stage on the devices of a request."""

    def __init__(
        self,
        stage: StagePipelineConfig,
        settings: StageSettings,
        request: PlanRequest,
        catalog: Catalog,
    ) -> None:
        """Keep what every candidate shares."""
        self.stage_id = stage.stage_id
        self.name = stage.model_stage
        self._stage = stage
        self._settings = settings
        self._axes = catalog.axes
        self._facts = request.facts.get(stage.model_stage, StageFacts())
        self._each = request.devices.each
        self._choice = chosen(stage, settings, catalog.engines, Report())
        self._devices = request.devices
        self._listed = bound_devices(settings)
        report = Report()
        check_stack(self.stack({}), report)
        self._skipped = set(report.skipped)
        self._can_run = request.pipeline.planning_only is None
        free = [axis for axis in catalog.axes.values() if self._is_free(axis)]
        self._lying = [axis for axis in free if self._lies(axis)]
        self._bringing = [axis for axis in free if self._brings(axis)]
        self._sharing = [
            shared_by(axis.name, option)
            for axis in catalog.axes.values()
            for option in sorted(axis.sharing)
            if self._may_share(axis, option)
        ]
        copying = (axis.name for axis in free if axis.role is WorldRole.MULTIPLIES_REPLICAS)
        self.copying: str | None = min(copying, default=None)

    @property
    def as_given(self) -> Candidate:
        """The layout as it was given, even where it takes more memory than there is."""
        stack = self.stack({})
        if check_stack(stack, Report()):
            return self._counted({}, stack)
        return Candidate(
            sizes={},
            world=stack.world,
            num_replicas=stack.num_replicas,
            cost=StageCost(),
            time=None,
        )

    @property
    def grows(self) -> bool:
        """Whether it may get more copies: nobody has said how many, nor where."""
        return self.copying is not None and self._listed is None

    def copies(self, candidate: Candidate) -> int:
        """Copies that the listed devices ask for; one where nothing is listed."""
        if self.copying is None or self._listed is None:
            return 1
        return max((self._listed.value.count(",") + 1) // candidate.ranks, 1)

    def all(self, most: int, *, saving: bool = False) -> list[Candidate]:
        """Return what is allowed on at most so many devices; the layout as it was given first.

        Axes that only save memory are tried where nothing fits without, or if they are `saving`.
        """
        swift = [axis for axis in self._bringing if not _only_saves(axis)]
        found = [] if saving else list(self._allowed(swift, most, saving=False))
        return found or list(self._allowed(self._bringing, most, saving=saving))

    def has_any(self, most: int) -> bool:
        """Whether anything is allowed on at most so many devices."""
        return any(True for _ in self._allowed(self._bringing, most, saving=False))

    def _allowed(self, bringing: Sequence[Axis], most: int, *, saving: bool) -> Iterator[Candidate]:
        if self._listed is not None:
            most = min(most, self._listed.value.count(",") + 1)
        for brought in self._brought(bringing, most):
            swift: list[frozenset[str]] = []
            for overlays in subsets(self._lying):
                names = frozenset(axis.name for axis in overlays)
                needless = any(enough <= names for enough in swift)
                if needless and not saving and any(map(_only_saves, overlays)):
                    continue
                for sizes in self._overlaid(brought, overlays, most):
                    for found in self._with_shares(sizes, saving=saving):
                        if found.ranks <= most and self._fills(found):
                            swift.append(names)
                            yield found

    def _with_shares(self, sizes: Sizes, *, saving: bool) -> Iterator[Candidate]:
        """Yield a layout, and where it does not fit, or to save, with all ranks sharing parts."""
        found = self._checked(sizes)
        if found is None:
            return
        is_too_large = self._is_too_large(found.cost)
        if not is_too_large:
            yield found
        if self._sharing and found.world > 1 and (saving or is_too_large):
            shared = self._checked({**sizes, **dict.fromkeys(self._sharing, found.world)})
            if (
                shared is not None
                and shared.rank_bytes < found.rank_bytes
                and not self._is_too_large(shared.cost)
            ):
                yield shared

    def _fills(self, found: Candidate) -> bool:
        """Whether it takes all devices that are listed, for every copy or for all together."""
        if self._listed is None:
            return True
        listed = self._listed.value.count(",") + 1
        return listed in (found.world, found.ranks * self.copies(found))

    def candidate(self, sizes: Sizes) -> Candidate | None:
        """Return one layout; `None` when the planner's checks refuse it or there is no room."""
        found = self._checked(sizes)
        return None if found is None or self._is_too_large(found.cost) else found

    def _checked(self, sizes: Sizes) -> Candidate | None:
        """Ask the planner's checks about one layout; `None` when they refuse it.

        What they cannot check is not proposed either, unless it was given so.
        """
        stack = self.stack(sizes)
        report = Report()
        if not check_stack(stack, report) or report.failed:
            return None
        if not set(report.skipped) <= self._skipped:
            return None
        spec = self._choice.spec
        if spec is not None and isinstance(self._choice.args, spec.options):
            given = memory_input(stack, self._choice, self._each)
            if next(iter(spec.check(given)), None) is not None:
                return None
        return self._counted(sizes, stack)

    def _counted(self, sizes: Sizes, stack: Stack) -> Candidate:
        cost = stage_cost(stack, self._choice, self._each)
        return Candidate(
            sizes=sizes,
            world=stack.world,
            num_replicas=stack.num_replicas,
            cost=cost,
            time=stage_time(cost, self._each.kind),
        )

    # --- smaller ones ---------------------------------------------------------------------------

    def smaller(self) -> Iterator[Sizes]:
        """Yield smaller sizes of the axes that were given, the least distance first.

        Before them come the given ones with parts shared by all ranks, and behind them the others.
        """
        given = self._shrinking
        changes = [
            {name: size for name, size in zip(given, sizes, strict=True) if size != given[name]}
            for sizes in itertools.product(*map(below, given.values()))
        ]
        changes.sort(key=self.distance)
        unchanged, *others = changes
        yield from self._sharing_all([unchanged])
        yield from others
        yield from self._sharing_all(others)

    def _sharing_all(self, changes: Sequence[Sizes]) -> Iterator[Sizes]:
        """Add to layouts that all of their ranks share parts."""
        for sizes in changes if self._sharing else ():
            world = self.stack(sizes).world
            if world > 1:
                yield {**sizes, **dict.fromkeys(self._sharing, world)}

    def distance(self, sizes: Sizes) -> tuple[int, int]:
        """How far sizes are from those that were given: changes, then ranks that are lost."""
        return (len(sizes), -math.prod({**self._shrinking, **sizes}.values()))

    @property
    def least(self) -> Sizes:
        """All of these axes at 1."""
        return dict.fromkeys(self._shrinking, 1)

    def latency(self, sizes: Sizes) -> float:
        """Estimated seconds of a request; nothing where it is unknown."""
        time = self._counted(sizes, self.stack(sizes)).time
        return 0.0 if time is None else time.latency

    @property
    def _shrinking(self) -> Sizes:
        """Axes larger than 1, and options that are, whose size a stage field can say."""
        sizes: dict[str, int] = {}
        for item in self.stack({}).axes:
            if item.size > 1 and self._is_said_by_a_field(item.axis):
                sizes[item.axis.name] = item.size
            shared = {name: item.settings.options.get(name) for name in sorted(item.axis.sharing)}
            for option, given in shared.items():
                if given is not None and given.value != 1 and item.axis.field_for(option):
                    sizes[shared_by(item.axis.name, option)] = cast("int", given.value)
        return sizes

    @staticmethod
    def _is_said_by_a_field(axis: Axis) -> bool:
        """Whether a stage field says its size, or what it is made of."""
        return any(sets.member in {SIZE, *axis.about_size} for sets in axis.deploy_fields)

    def is_possible(self, sizes: Sizes, *, freed: bool) -> bool:
        """Whether the stage could be laid out if it were the only one, `freed` of its devices."""
        found, report = self.candidate(sizes), Report()
        if found is None:
            return False
        wish = Wish(
            stage_id=self.stage_id,
            stage=self.name,
            world=found.world,
            num_replicas=found.num_replicas,
            listed=None if freed else self._listed,
            rank_bytes=found.rank_bytes,
        )
        place([wish], self._devices, report)
        return all(each.code == _GAP for each in report.diagnostics)

    def stack(self, sizes: Sizes) -> Stack:
        """Return the axes of the stage under other sizes."""
        settings = changed_stage(self._settings, Change(sizes=sizes), self._axes)
        return stack_of(self._stage, settings, self._facts, self._axes)

    def _is_too_large(self, cost: StageCost) -> bool:
        room = self._each.memory_bytes
        return cost.memory is not None and room is not None and cost.memory.total > room

    # --- which axes -----------------------------------------------------------------------------

    def _is_free(self, axis: Axis) -> bool:
        return axis.name not in self._settings.axes and self._may_have(axis)

    def _may_share(self, axis: Axis, option: str) -> bool:
        """Whether an option is free and means something to stages of this kind."""
        given, kind = self._settings.axes.get(axis.name), self._stage.execution_type
        is_said = given is not None and option in given.options
        fits = (sets.fits or axis.fits for sets in axis.deploy_fields if sets.member == option)
        return not is_said and self._may_have(axis) and all(kind in each for each in fits)

    def _may_have(self, axis: Axis) -> bool:
        return (
            self._is_executed(axis)
            and self._stage.execution_type in axis.fits
            and axis.name not in self._stage.excludes
            and not any(_is_required(option) for option in dataclasses.fields(axis.options))
        )

    def _is_executed(self, axis: Axis) -> bool:
        """Whether the stage can run with it; what only plans anyway can be planned in any way."""
        spec = self._choice.spec
        if not self._can_run or spec is None or spec.planning_only is not None:
            return True
        return axis.role is WorldRole.MULTIPLIES_REPLICAS or axis.name in spec.executes

    def _lies(self, axis: Axis) -> bool:
        """Whether it lies over ranks; experts are spread only where some are known."""
        parts = axis.cuts(2, axis.options())
        return axis.role is WorldRole.REUSES_RANKS and (
            Part.EXPERTS not in parts or bool(self._facts.num_experts)
        )

    def _supplies(self, axis: Axis) -> bool:
        """Whether it brings the ranks itself where no other axis does."""
        return axis.supplies_world or axis.name == self._stage.rank_axis

    def _brings(self, axis: Axis) -> bool:
        """Whether it brings ranks that are of use: copies are, where experts lie over them."""
        if axis.role is not WorldRole.MULTIPLIES_RANKS:
            return False
        kind = self._stage.execution_type
        return bool(set(axis.cuts(2, axis.options())) - {Part.REQUESTS}) or any(
            axis.name in lying.size_from.get(kind, ())
            and Part.EXPERTS in lying.cuts(2, lying.options())
            for lying in self._lying
        )

    # --- which sizes ----------------------------------------------------------------------------

    def _brought(self, bringing: Sequence[Axis], most: int) -> Iterator[Sizes]:
        """Sizes of the axes that bring ranks, all at 1 first."""
        given = self.stack({}).world
        most = min(most, max(given, _LARGEST))
        names = [axis.name for axis in bringing]
        for product in products(len(names), most // max(given, 1)):
            if is_usual(math.prod(product), most):
                pairs = zip(names, product, strict=True)
                yield {name: size for name, size in pairs if size > 1}

    def _overlaid(self, brought: Sizes, overlays: Sequence[Axis], most: int) -> Iterator[Sizes]:
        """Give every overlay the size that it has to have; alone, one may bring all ranks."""
        if not overlays:
            yield brought
            return
        world = self.stack(brought).world
        if world == 1:
            first = overlays[0]
            if len(overlays) == 1 and self._supplies(first):
                yield from ({first.name: size} for size in range(2, min(most, _LARGEST) + 1))
            return
        sizes = {
            axis.name: implied_size(axis, self._stage, self.stack(brought).sizes) or world
            for axis in overlays
        }
        yield {**brought, **sizes}


def _is_required(option: dataclasses.Field[object]) -> bool:
    return option.default is option.default_factory is dataclasses.MISSING


def _only_saves(axis: Axis) -> bool:
    return axis.cuts(2, axis.options()).keys() <= ONLY_SAVE_MEMORY
