"""The room on devices: what lies there, who takes it, and what is said where there is none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from stagemesh.plan.devices import Devices
from stagemesh.plan.report import Report
from stagemesh.plan.values import DevicesPlan
from stagemesh.plan.wish import DeviceIds, Wish
from stagemesh.plan.words import size_text
from stagemesh.spec.diagnostic import Diagnostic, Note, counted

_LARGER: Final = "give larger devices, spread the stage over more, or lower what its engine keeps"
"""What helps where no device holds a rank, however empty it is."""


def exceeds(share: float) -> bool:
    """Whether a sum of shares is more than a whole device, apart from rounding."""
    return round(share, 6) > 1


def shares_text(device: int, share: float) -> str:
    """Say what the ranks on a device may use of it."""
    return f"the ranks on device `{device}` may use `{share:.4g}` of its memory together"


class Load:
    """What lies on the devices so far: bytes, shares of their memory, and ranks."""

    def __init__(self, memory: int | None) -> None:
        """Start with empty devices of so many bytes each, if that is known."""
        self.memory = memory
        self.bytes: dict[int, int] = {}
        self.shares: dict[int, float] = {}
        self.ranks: dict[int, tuple[Wish, ...]] = {}

    def copy(self) -> Load:
        """Return one to try a placement on."""
        trial = Load(self.memory)
        trial.bytes, trial.shares = dict(self.bytes), dict(self.shares)
        trial.ranks = dict(self.ranks)
        return trial

    def put(self, wish: Wish, replicas: Sequence[DeviceIds]) -> None:
        """Lay replicas of a stage onto their devices."""
        for device in itertools.chain.from_iterable(replicas):
            self.bytes[device] = self.bytes.get(device, 0) + wish.need(self.memory)
            self.shares[device] = self.shares.get(device, 0.0) + wish.shares
            self.ranks[device] = (*self.ranks.get(device, ()), wish)

    def has_room(self, wish: Wish, device: int) -> bool:
        """Whether one more rank fits on a device, as far as anything is known.

        What is too full already is told of those that fill it, and takes the others as well.
        """
        shares, held = self.shares.get(device, 0.0), self.bytes.get(device, 0)
        if exceeds(shares) or (self.memory is not None and held > self.memory):
            return True
        if exceeds(shares + wish.shares):
            return False
        return self.memory is None or held + wish.need(self.memory) <= self.memory

    def key(self, device: int) -> tuple[int, int, int]:
        """Order devices: those with the least on them first."""
        return (self.bytes.get(device, 0), len(self.ranks.get(device, ())), device)

    def taken_from(self, wish: Wish, count: int) -> Iterator[Note]:
        """Say which stages take those of `count` devices that have no room for a rank, and why."""
        full = [device for device in range(count) if not self.has_room(wish, device)]
        takers = {each.stage_id: each for device in full for each in self.ranks.get(device, ())}
        for each in takers.values():
            taken = [device for device in full if each in self.ranks.get(device, ())]
            yield Note(
                message=f"`{each.stage}` takes {each.need_text(self.memory)}"
                f" of {_devices_text(taken)}",
                origin=each.origin(self.memory),
            )
            yield from each.notes


def no_room(wish: Wish, devices: Devices, load: Load, found: int) -> Diagnostic:
    """Say that a stage finds only so many devices, what they are needed for, and who has them."""
    count = devices.count or 0
    if count < wish.world:
        return Diagnostic(
            code="PL014",
            message=f"`{wish.stage}` needs {counted(wish.world, 'device')},"
            f" and there are `{count}`",
            notes=wish.notes,
            help="give more devices with `--devices`, or make the axes of the stage smaller",
        )
    origin, need = wish.origin(load.memory), wish.need(load.memory)
    is_too_large = load.memory is not None and need > load.memory and not devices.shares_memory
    share = (
        [Note(message=f"`{wish.stage}` may use `{wish.share:g}` of a device", origin=origin)]
        if wish.follows_share(load.memory)
        else ()
    )
    return Diagnostic(
        code="PL015",
        message=f"`{wish.stage}` needs {wish.need_text(load.memory)}"
        f" on {counted(wish.world, 'device')}, and `{found}` have room",
        origin=origin,
        notes=tuple(
            dict.fromkeys((*share, *_with(wish), *wish.notes, *load.taken_from(wish, count)))
        ),
        help=_LARGER if is_too_large else _more_memory(devices, need),
    )


def _devices_text(devices: Sequence[int]) -> str:
    if len(devices) == 1:
        return f"device `{devices[0]}`"
    return f"each of `{len(devices)}` devices"


def _with(wish: Wish) -> Iterator[Note]:
    """Whose needs are counted along."""
    for guest in wish.guests:
        yield Note(message=f"that is with `{guest.stage}`, which shares its processes")


def held_by(
    placed: Mapping[int, tuple[DeviceIds, ...]], wishes: Sequence[Wish]
) -> Mapping[int, list[Wish]]:
    """Return what lies on each device that is used: the wish of every rank there."""
    held: dict[int, list[Wish]] = {}
    for wish in wishes:
        for device in itertools.chain.from_iterable(placed.get(wish.stage_id, ())):
            held.setdefault(device, []).append(wish)
    return held


def check_memory(
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
    for device, ranks in sorted(held_by(placed, wishes).items()):
        names = frozenset(rank.stage for rank in ranks)
        total = sum(rank.need(memory) for rank in ranks)
        if total <= memory or names in told:
            continue
        told.add(names)
        if not exceeds(sum(rank.shares for rank in ranks)):  # else a rule tells of them
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
            Note(message=f"`{stage}` takes {_amount_text(amount)}", origin=origins.get(stage))
            for stage, amount in amounts.items()
        ),
        help=_more_memory(devices, total),
    )


def _amount_text(amount: int) -> str:
    """Say what a stage takes; a rank with nothing to count is one that nobody knows."""
    return size_text(amount) if amount else "memory as well; how much is not known"


def _more_memory(devices: Devices, need: int) -> str:
    if devices.memory_bytes is not None and need > devices.memory_bytes:
        return (
            "lower what the engines of these stages keep, or the number of replicas and ranks;"
            " `--devices 8xH200` plans for devices that are not here"
        )
    if devices.shares_memory:
        return "give fewer devices with `--devices`: they divide the memory of this host evenly"
    return "give more devices, or lower what the engines of these stages keep"
