"""Which devices a plan may use: those of the host, a number of them, or imaginary ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from stagemesh.config.host import Host
from stagemesh.config.tree import quoted
from stagemesh.plan.values import DevicesPlan
from stagemesh.spec.diagnostic import Diagnostic, did_you_mean
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.unset import UNSET, Unset

_GIGABYTE: Final = 10**9

MAX_DEVICES: Final = 2**16
"""Devices that a plan may be made for; a slip of the keyboard must not fill the memory."""
IMAGINARY: Final[Mapping[str, int]] = {
    "A100": 80 * _GIGABYTE,
    "A10G": 24 * _GIGABYTE,
    "Ascend910B": 64 * _GIGABYTE,
    "B200": 180 * _GIGABYTE,
    "H100": 80 * _GIGABYTE,
    "H200": 141 * _GIGABYTE,
    "L4": 24 * _GIGABYTE,
    "L40S": 48 * _GIGABYTE,
    "MI300X": 192 * _GIGABYTE,
    "MTTS4000": 48 * _GIGABYTE,
    "Max1550": 128 * _GIGABYTE,
    "RTX4090": 24 * _GIGABYTE,
    "RTX5090": 32 * _GIGABYTE,
    "T4": 16 * _GIGABYTE,
}
"""Devices that can be assumed, with their bytes as the vendor states them."""

_PLATFORMS: Final[Mapping[str, str]] = {
    "Ascend910B": "npu",
    "MI300X": "rocm",
    "MTTS4000": "musa",
    "Max1550": "xpu",
}
"""Platforms of the imaginary devices that CUDA does not drive."""


def platform_of(kind: str) -> str:
    """Return what drives devices of a kind; hosts say that as their kind."""
    return _PLATFORMS.get(kind, "cuda" if kind in IMAGINARY else kind)


@frozen
class Devices:
    """The devices that placement may use."""

    kind: str
    """`cpu`, `cuda`, or the name of an imaginary device."""
    count: int | None
    """How many there are; `None` for as many as the plan needs."""
    memory_bytes: int | None
    """Bytes of one device, or of all together where they share it; `None` when it is not known."""
    shares_memory: bool = False
    """Whether the devices are slots that divide one memory evenly."""
    imaginary: bool = False
    """Whether they are only assumed."""
    ids: tuple[str, ...] = ()
    """What the driver calls each of them; empty where nothing does."""
    system: str = "linux"
    """The operating system of their host, as Python calls it; assumed ones run Linux."""

    @property
    def platform(self) -> str:
        """What drives them: the name of a section of a deploy file, such as `cuda`."""
        return platform_of(self.kind)

    def resolved(self, count: int) -> DevicesPlan:
        """Return what the plan says about them when it is made for `count` of them."""
        memory = self.memory_bytes
        if memory is not None and self.shares_memory:
            memory //= max(count, 1)
        return DevicesPlan(
            kind=self.kind,
            count=count,
            memory_bytes=memory,
            imaginary=self.imaginary,
            ids=self.ids[:count],
        )

    @property
    def each(self) -> DevicesPlan:
        """What is known about one of them before anything is placed."""
        if self.count is None and self.shares_memory:
            return replace(self, memory_bytes=None).resolved(1)
        return self.resolved(self.count or 1)


ANY_DEVICES: Final = Devices(kind="cpu", count=None, memory_bytes=None, shares_memory=True)
"""As many devices as are asked for, of which nothing is known."""


def devices_from(
    given: str | int | Unset, host: Host, flag: str = "--devices"
) -> Devices | Diagnostic:
    """Read `--devices N` or `--devices NxNAME`; without it the host's devices are meant.

    `flag` is what messages call it.
    """
    if given is UNSET:
        return _of_host(host, host.count)
    match = re.fullmatch(r"([1-9][0-9]*|0)(?:x([A-Za-z0-9]+))?", str(given), re.ASCII)
    # what has more digits is not converted: that could take minutes
    if match is None or not 0 < int(match[1][: len(str(MAX_DEVICES)) + 1]) <= MAX_DEVICES:
        takes = "a number or a number and a name"
        takes = takes if match is None else f"from `1` to `{MAX_DEVICES}` devices"
        return _wrong(
            flag,
            "PL001",
            f"`{flag}` takes {takes}, got {quoted(given)}",
            f"write `{flag} 4`, or `{flag} 8xH200` to plan for devices that are not here",
        )
    count, name = int(match[1]), match[2]
    if name is not None:
        if name not in IMAGINARY:
            help_text = did_you_mean(name, IMAGINARY)
            return _wrong(flag, "PL002", f"unknown device {quoted(name)}", help_text)
        return Devices(kind=name, count=count, memory_bytes=IMAGINARY[name], imaginary=True)
    if host.count is not None and count > host.count:
        return _wrong(
            flag,
            "PL003",
            f"`{flag} {count}` asks for more than the `{host.count}` devices of this host",
            f"write `{flag} {host.count}`, or `{flag} {count}xH200` to plan for others",
        )
    return _of_host(host, count)


def _of_host(host: Host, count: int | None) -> Devices:
    return Devices(
        kind=host.kind,
        count=count,
        memory_bytes=host.memory_bytes,
        shares_memory=host.count is None,
        ids=host.ids,
        system=host.system,
    )


def _wrong(flag: str, code: str, message: str, help_text: str) -> Diagnostic:
    origin = Origin(layer=Layer.GLOBAL, source=flag)
    return Diagnostic(code=code, message=message, origin=origin, help=help_text)
