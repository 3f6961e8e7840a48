"""Which rank of which replica of which stage lies on which device.

A stage that lists devices is bound to them; the others are placed in stage order, each rank on the
least loaded device that has room, the ranks of one replica on distinct devices.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, TypeAlias

from stagemesh.config.settings import Sourced
from stagemesh.plan.devices import Devices
from stagemesh.plan.full import exceeds
from stagemesh.plan.report import Report
from stagemesh.plan.values import DevicesPlan
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Origin

DeviceIds: TypeAlias = tuple[int, ...]

_DIGITS: Final = 6
_MAX_DEVICES: Final = 10**5
"""Devices that a plan may use where their number is free."""


@frozen
class Wish:
    """What one stage needs."""

    stage_id: int
    """Number of the stage."""
    stage: str
    """Name of the stage."""
    world: int
    """Ranks of one replica."""
    num_replicas: int
    """Replicas."""
    listed: Sourced[str] | None
    """The devices that it lists, such as `0,1`."""
    repeats: bool = True
    """Whether a list for one replica stands for the others too, each on the devices behind it."""
    rank_bytes: int | None
    """Memory of one rank, when it is known."""
    share: float | None = None
    """Share of a device that one rank may use, when it has one."""
    asked: Origin | None = None
    """Where it was said what one rank keeps, if anybody did."""
    placed: tuple[DeviceIds, ...] | None = None
    """Where its replicas lie already, for a plan that was read back."""
    notes: tuple[Note, ...] = ()
    """Where the sizes were set that make up ranks and replicas."""

    def need(self, memory: int | None) -> int:
        """Bytes to keep free for one rank on a device of `memory` bytes, all of its share."""
        reserved = 0 if self.share is None or memory is None else int(self.share * memory)
        return max(self.rank_bytes or 0, reserved)


@frozen
class Placement:
    """Where everything lies."""

    replicas: Mapping[int, tuple[DeviceIds, ...]]
    """Device ids of every replica's ranks, by stage id; without the stages that have no place."""
    devices: DevicesPlan
    """The devices, with their number decided."""
    moved: Mapping[int, str] = field(default_factory=dict)
    """Stages that do not lie where the model's own deploy file puts them, and why, by id."""


class _Load:
    """What lies on the devices so far: bytes, shares of their memory, and ranks."""

    def __init__(self, memory: int | None) -> None:
        self.memory = memory
        self.bytes: dict[int, int] = {}
        self.shares: dict[int, float] = {}
        self.ranks: dict[int, int] = {}

    def copy(self) -> _Load:
        """Return one to try a placement on."""
        trial = _Load(self.memory)
        trial.bytes, trial.shares = dict(self.bytes), dict(self.shares)
        trial.ranks = dict(self.ranks)
        return trial

    def put(self, wish: Wish, replicas: Sequence[DeviceIds]) -> None:
        for device in itertools.chain.from_iterable(replicas):
            self.bytes[device] = self.bytes.get(device, 0) + wish.need(self.memory)
            self.shares[device] = self.shares.get(device, 0.0) + (wish.share or 0.0)
            self.ranks[device] = self.ranks.get(device, 0) + 1

    def has_room(self, wish: Wish, device: int) -> bool:
        """Whether one more rank fits on a device, as far as anything is known.

        What is too full already is told of those that fill it, and takes the others as well.
        """
        shares, held = self.shares.get(device, 0.0), self.bytes.get(device, 0)
        if exceeds(shares) or (self.memory is not None and held > self.memory):
            return True
        if exceeds(shares + (wish.share or 0.0)):
            return False
        return self.memory is None or held + wish.need(self.memory) <= self.memory

    def key(self, device: int) -> tuple[int, int, int]:
        return (self.bytes.get(device, 0), self.ranks.get(device, 0), device)


def place(wishes: Sequence[Wish], devices: Devices, report: Report) -> Placement:
    """Place every stage; what does not fit is reported."""
    known = None if devices.count is None else devices.resolved(devices.count).memory_bytes
    load = _Load(known)
    placed: dict[int, tuple[DeviceIds, ...]] = {}
    for bound in (True, False):
        for wish in wishes:
            if (wish.listed is not None) is bound:
                replicas = _place_one(wish, devices, load, report)
                if replicas is not None:
                    load.put(wish, replicas)
                    placed[wish.stage_id] = replicas
    if devices.count is None:
        _check_gaps(placed, wishes, report)
    count = devices.count if devices.count is not None else max(load.ranks, default=0) + 1
    resolved = devices.resolved(count)
    _check_memory(placed, resolved, devices, wishes, report)
    return Placement(replicas=placed, devices=resolved)


def _place_one(
    wish: Wish, devices: Devices, load: _Load, report: Report
) -> tuple[DeviceIds, ...] | None:
    if wish.placed is not None:
        return _place_again(wish, wish.placed, devices, report)
    if wish.listed is not None:
        return _place_listed(wish, wish.listed, devices, report)
    return _place_freely(wish, devices, load, report)


def _place_again(
    wish: Wish, placed: tuple[DeviceIds, ...], devices: Devices, report: Report
) -> tuple[DeviceIds, ...] | None:
    """Take a placement as it is, if replicas, ranks and devices are those of the stage."""
    allowed = range(_MAX_DEVICES if devices.count is None else devices.count)
    if len(placed) == wish.num_replicas and all(
        len(ids) == len(set(ids)) == wish.world and all(each in allowed for each in ids)
        for ids in placed
    ):
        return placed
    report.add(
        Diagnostic(
            code="PL018",
            message=f"`{wish.stage}` is not placed as {_shape(wish)} can be",
            help=f"ranks of a replica have distinct devices, from `0` to `{allowed[-1]}`",
        )
    )
    return None


def _place_listed(
    wish: Wish, listed: Sourced[str], devices: Devices, report: Report
) -> tuple[DeviceIds, ...] | None:
    """Cut a list for all replicas into slices, or repeat a list for one replica."""
    texts = [text.strip() for text in listed.value.split(",")]
    ids = tuple(int(text[-_DIGITS:]) for text in texts)
    problem = (
        _wrong_count(wish, len(ids), listed.origin)
        or _outside(wish, listed.origin, texts, devices)
        or _wrong_ids(wish, ids, listed.origin)
    )
    if problem is not None:
        report.add(problem)
        return None
    world = wish.world
    if len(ids) == world * wish.num_replicas:
        return tuple(ids[start : start + world] for start in range(0, len(ids), world))
    replicas = tuple(
        tuple(replica * world + each for each in ids) for replica in range(wish.num_replicas)
    )
    beyond = _outside(wish, listed.origin, [str(each) for each in replicas[-1]], devices)
    if beyond is not None:
        report.add(beyond)
        return None
    return replicas


def _wrong_count(wish: Wish, got: int, origin: Origin) -> Diagnostic | None:
    total = wish.world * wish.num_replicas
    need = sorted({wish.world if wish.repeats else total, total})
    if got in need:
        return None
    allowed = " or ".join(f"`{number}`" for number in need)
    return Diagnostic(
        code="PL010",
        message=f"`{wish.stage}` lists `{got}` devices and needs {allowed}: {_shape(wish)}",
        origin=origin,
        notes=wish.notes,
        help="list as many, in a deploy file or with `--stage-overrides`, or change its axes",
    )


def _outside(
    wish: Wish, origin: Origin, texts: Sequence[str], devices: Devices
) -> Diagnostic | None:
    """Find an id that no device has; ids of absurd length are never turned into numbers."""
    limit = _MAX_DEVICES if devices.count is None else devices.count
    called = ",".join(devices.ids[:limit])
    for text in texts:
        digits = text.lstrip("0")
        if len(digits) > _DIGITS or int(digits or "0") >= limit:
            shown = text if len(text) <= _DIGITS else f"{text[:_DIGITS]}..."
            return Diagnostic(
                code="PL012",
                message=f"`{wish.stage}` asks for device `{shown}`, and there are `{limit}`",
                origin=origin,
                notes=wish.notes,
                help=f"devices are numbered from `0` to `{limit - 1}`"
                + (f"; visible are `{called}`" if called else ""),
            )
    return None


def _wrong_ids(wish: Wish, ids: DeviceIds, origin: Origin) -> Diagnostic | None:
    twice = [each for each, times in Counter(ids).items() if times > 1]
    if twice:
        return Diagnostic(
            code="PL011",
            message=f"`{wish.stage}` lists device `{twice[0]}` more than once",
            origin=origin,
            help="list each device once; different stages may share a device",
        )
    total = wish.world * wish.num_replicas
    if len(ids) == total or max(ids) < wish.world:
        return None
    return Diagnostic(
        code="PL013",
        message=f"`{wish.stage}`: device `{max(ids)}` cannot be repeated for {_shape(wish)}",
        origin=origin,
        notes=wish.notes,
        help=f"list all `{total}` devices, or those of one replica counted from `0`",
    )


def _place_freely(
    wish: Wish, devices: Devices, load: _Load, report: Report
) -> tuple[DeviceIds, ...] | None:
    replicas: list[DeviceIds] = []
    trial = load.copy()
    for _ in range(wish.num_replicas):
        chosen = (
            _fresh(wish.world, trial)
            if devices.count is None
            else _least_loaded(wish, devices.count, trial)
        )
        if len(chosen) < wish.world:
            report.add(_no_room(wish, devices, len(chosen)))
            return None
        trial.put(wish, [chosen])
        replicas.append(chosen)
    return tuple(replicas)


def _fresh(world: int, load: _Load) -> DeviceIds:
    unused = (device for device in itertools.count() if device not in load.ranks)
    return tuple(itertools.islice(unused, world))


def _least_loaded(wish: Wish, count: int, load: _Load) -> DeviceIds:
    """Return devices that nothing lies on, or else those with the least on them."""
    unused = (device for device in range(count) if device not in load.ranks)
    fresh = tuple(itertools.islice(unused, wish.world))
    if len(fresh) == wish.world and load.has_room(wish, fresh[0]):
        return fresh
    having_room = (device for device in range(count) if load.has_room(wish, device))
    return tuple(sorted(sorted(having_room, key=load.key)[: wish.world]))


def _no_room(wish: Wish, devices: Devices, found: int) -> Diagnostic:
    count = devices.count or 0
    if count < wish.world:
        return Diagnostic(
            code="PL014",
            message=f"`{wish.stage}` needs `{wish.world}` devices, and there are `{count}`",
            notes=wish.notes,
            help="give more devices with `--devices`, or make the axes of the stage smaller",
        )
    need = wish.need(devices.resolved(count).memory_bytes)
    wanted = size_text(need) if need or wish.share is None else f"`{wish.share:g}` of the memory"
    return Diagnostic(
        code="PL015",
        message=f"`{wish.stage}` needs {wanted} on `{wish.world}` devices, and `{found}` have room",
        origin=wish.asked,
        notes=wish.notes,
        help=_more_memory(devices, need),
    )


def _check_gaps(
    placed: Mapping[int, tuple[DeviceIds, ...]], wishes: Sequence[Wish], report: Report
) -> None:
    """Where devices are as many as the plan needs, an id that none uses is a slip of the pen."""
    held = _held(placed, wishes)
    last = max(held, default=0)
    skipped = next((device for device in range(last) if device not in held), None)
    if skipped is None:
        return
    origins = [wish.listed.origin for wish in held[last] if wish.listed is not None]
    report.add(
        Diagnostic(
            code="PL017",
            message=f"device `{last}` is used and device `{skipped}` is not",
            origin=next(iter(origins), None),
            help="number devices from `0` without gaps, or say how many there are with `--devices`",
        )
    )


def _held(
    placed: Mapping[int, tuple[DeviceIds, ...]], wishes: Sequence[Wish]
) -> Mapping[int, list[Wish]]:
    """Return what lies on each device that is used: the wish of every rank there."""
    held: dict[int, list[Wish]] = {}
    for wish in wishes:
        for device in itertools.chain.from_iterable(placed.get(wish.stage_id, ())):
            held.setdefault(device, []).append(wish)
    return held


def _check_memory(
    placed: Mapping[int, tuple[DeviceIds, ...]],
    resolved: DevicesPlan,
    devices: Devices,
    wishes: Sequence[Wish],
    report: Report,
) -> None:
    """Report every set of stages that is too much for a device, once."""
    memory = resolved.memory_bytes
    if memory is None:
        return
    told: set[frozenset[str]] = set()
    for device, ranks in sorted(_held(placed, wishes).items()):
        names = frozenset(rank.stage for rank in ranks)
        total = sum(rank.need(memory) for rank in ranks)
        if total <= memory or names in told:
            continue
        told.add(names)
        if not exceeds(sum(rank.share or 0.0 for rank in ranks)):  # else a rule tells of them
            report.add(_too_much(device, ranks, memory, devices))


def _too_much(device: int, ranks: Sequence[Wish], memory: int, devices: Devices) -> Diagnostic:
    total = sum(rank.need(memory) for rank in ranks)
    amounts: dict[str, int] = {}
    for rank in ranks:
        amounts[rank.stage] = amounts.get(rank.stage, 0) + rank.need(memory)
    origins = {rank.stage: rank.listed.origin for rank in ranks if rank.listed is not None}
    return Diagnostic(
        code="PL016",
        message=f"device `{device}` has {size_text(memory)},"
        f" and its stages need {size_text(total)}",
        origin=next((origins[stage] for stage in amounts if stage in origins), None),
        notes=tuple(
            Note(message=f"`{stage}` takes {size_text(amount)}", origin=origins.get(stage))
            for stage, amount in amounts.items()
        ),
        help=_more_memory(devices, total),
    )


def _more_memory(devices: Devices, need: int) -> str:
    if devices.memory_bytes is not None and need > devices.memory_bytes:
        return "lower what the engines of these stages keep, or the number of replicas and ranks"
    if devices.shares_memory:
        return "give fewer devices with `--devices`: they divide the memory of this host evenly"
    return "give more devices, or lower what the engines of these stages keep"


def _shape(wish: Wish) -> str:
    ranks = f"`{wish.world}` {'rank' if wish.world == 1 else 'ranks'}"
    if wish.num_replicas == 1:
        return ranks
    return f"`{wish.num_replicas}` replicas of {ranks}"


def size_text(amount: int) -> str:
    """Say a number of bytes for people."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = min((max(amount, 1).bit_length() - 1) // 10, len(units) - 1)
    return f"{amount / 1024**power:.4g} {units[power]}"
