"""Which rank of which replica of which stage lies on which device.

A stage that lists devices is bound to them; the others are placed in stage order, each rank on the
least loaded device that has room, the ranks of one replica on distinct devices.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from stagemesh.config.settings import Sourced
from stagemesh.plan.devices import Devices
from stagemesh.plan.report import Report
from stagemesh.plan.room import Load, check_memory, held_by, no_room
from stagemesh.plan.values import DevicesPlan
from stagemesh.plan.wish import DeviceIds, Wish
from stagemesh.spec.diagnostic import Diagnostic, counted
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Origin

_DIGITS: Final = 6
_MAX_DEVICES: Final = 10**5
"""Devices that a plan may use where their number is free."""


@frozen
class Placement:
    """Where everything lies."""

    replicas: Mapping[int, tuple[DeviceIds, ...]]
    """Device ids of every replica's ranks, by stage id; without the stages that have no place."""
    devices: DevicesPlan
    """The devices, with their number decided."""
    moved: Mapping[int, str] = field(default_factory=dict)
    """Stages that do not lie where the model's own deploy file puts them, and why, by id."""


def place(wishes: Sequence[Wish], devices: Devices, report: Report) -> Placement:
    """Place every stage; what does not fit is reported."""
    known = None if devices.count is None else devices.resolved(devices.count).memory_bytes
    load = Load(known)
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
    check_memory(placed, resolved, devices, wishes, report)
    return Placement(replicas=placed, devices=resolved)


def _place_one(
    wish: Wish, devices: Devices, load: Load, report: Report
) -> tuple[DeviceIds, ...] | None:
    if wish.placed is not None:
        return _place_again(wish, wish.placed, devices, report)
    if wish.listed is not None:
        return place_listed(wish, wish.listed, devices, report)
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
            message=f"`{wish.stage}` is not placed as {wish.shape} can be",
            help=f"ranks of a replica have distinct devices, from `0` to `{allowed[-1]}`",
        )
    )
    return None


def place_listed(
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
        message=f"`{wish.stage}` lists {counted(got, 'device')} and needs {allowed}: {wish.shape}",
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
        message=f"`{wish.stage}`: device `{max(ids)}` cannot be repeated for {wish.shape}",
        origin=origin,
        notes=wish.notes,
        help=f"list all `{total}` devices, or those of one replica counted from `0`",
    )


def _place_freely(
    wish: Wish, devices: Devices, load: Load, report: Report
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
            report.add(no_room(wish, devices, trial, len(chosen)))
            return None
        trial.put(wish, [chosen])
        replicas.append(chosen)
    return tuple(replicas)


def _fresh(world: int, load: Load) -> DeviceIds:
    unused = (device for device in itertools.count() if device not in load.ranks)
    return tuple(itertools.islice(unused, world))


def _least_loaded(wish: Wish, count: int, load: Load) -> DeviceIds:
    """Return devices that nothing lies on, or else those with the least on them."""
    unused = (device for device in range(count) if device not in load.ranks)
    fresh = tuple(itertools.islice(unused, wish.world))
    if len(fresh) == wish.world and load.has_room(wish, fresh[0]):
        return fresh
    having_room = (device for device in range(count) if load.has_room(wish, device))
    return tuple(sorted(sorted(having_room, key=load.key)[: wish.world]))


def _check_gaps(
    placed: Mapping[int, tuple[DeviceIds, ...]], wishes: Sequence[Wish], report: Report
) -> None:
    """Where devices are as many as the plan needs, an id that none uses is a slip of the pen."""
    held = held_by(placed, wishes)
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
