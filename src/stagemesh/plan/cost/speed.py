"""How layouts compare in speed: a ratio from stated numbers of devices, for ranking and no more.

Computing takes as long as operations or memory, whichever is slower, at a stated share of what the
vendor states. Sending takes bytes over one direction of the link plus a constant for every
collective; an axis says which share of that passes while the rank computes. Start-up of kernels,
the host, text encoders and decoders of a denoising stage are left out, so ratios are upper bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stagemesh.plan.cost.estimate import StageCost
from stagemesh.spec.cost import Cost, Part
from stagemesh.spec.frozen import frozen

_COMPUTE_SHARE: Final = 0.6
"""Compiled FLUX.1 on one H100 reaches 62 % of the stated operations."""
_MEMORY_SHARE: Final = 0.8
_LINK_SHARE: Final = 0.8
"""25 of the 32 GB/s of PCIe 4.0 x16."""
_COLLECTIVE_SECONDS: Final = 20e-6
"""What a collective takes besides its bytes."""


@frozen
class DeviceSpeed:
    """What the vendor states about one device."""

    teraflops: float
    """Dense bfloat16 (float16 where there is none) operations, 10^12 a second."""
    memory: float
    """Gigabytes a second of its memory."""
    link: float
    """Gigabytes a second to another device of the same host, one direction."""


SPEEDS: Final[Mapping[str, DeviceSpeed]] = {
    "A100": DeviceSpeed(teraflops=312, memory=2039, link=300),  # SXM 80 GB data sheet; NVLink 3
    "A10G": DeviceSpeed(teraflops=70, memory=600, link=32),  # A10G data sheet; PCIe 4.0
    "Ascend910B": DeviceSpeed(teraflops=313, memory=1600, link=196),  # Atlas 800T brief; HCCS
    "B200": DeviceSpeed(teraflops=2250, memory=8000, link=900),  # DGX B200 data sheet; NVLink 5
    "H100": DeviceSpeed(teraflops=989, memory=3350, link=450),  # SXM5 data sheet; NVLink 4
    "H200": DeviceSpeed(teraflops=989, memory=4800, link=450),  # SXM data sheet; NVLink 4
    "L4": DeviceSpeed(teraflops=121, memory=300, link=32),  # data sheet; PCIe 4.0
    "L40S": DeviceSpeed(teraflops=362, memory=864, link=32),  # data sheet; PCIe 4.0
    "MI300X": DeviceSpeed(teraflops=1307, memory=5300, link=448),  # data sheet; Infinity Fabric
    "MTTS4000": DeviceSpeed(teraflops=100, memory=768, link=120),  # product page; MTLink 1.0
    "Max1550": DeviceSpeed(teraflops=839, memory=3277, link=424),  # product brief; Xe Link
    "RTX4090": DeviceSpeed(teraflops=165, memory=1008, link=32),  # Ada white paper; PCIe 4.0
    "RTX5090": DeviceSpeed(teraflops=209, memory=1792, link=64),  # Blackwell paper; PCIe 5.0
    "T4": DeviceSpeed(teraflops=65, memory=320, link=16),  # data sheet; PCIe 3.0
    "cpu": DeviceSpeed(teraflops=0.05, memory=10, link=5),  # assumed: one thread of a server
}
"""Known devices by the names of `--devices`, with where the numbers are from."""

ASSUMED: Final = "A100"
"""Stands for a device of which no numbers are known."""


@frozen
class StageTime:
    """Estimated seconds of one nominal request at one copy of a stage."""

    latency: float
    """From its beginning to its end."""
    busy: float
    """Of every device of the copy, requests that share a step counted by their part."""


def speed_of(device: str) -> DeviceSpeed:
    """Return what is known of a device, or of the one that stands for the unknown."""
    return SPEEDS.get(device, SPEEDS[ASSUMED])


def stage_time(cost: StageCost, device: str) -> StageTime | None:
    """Estimate one copy of a stage, or return `None` when nothing is known about its work."""
    forward, speed = cost.forward, speed_of(device)
    if forward is None or forward.work is None:
        return None
    operating = forward.work.flops / (speed.teraflops * 1e12 * _COMPUTE_SHARE)
    reading = forward.work.read_bytes / (speed.memory * 1e9 * _MEMORY_SHARE)
    computing = max(operating, reading)
    step, once = computing, 0.0
    for each in cost.axes.values():
        if each.per_request:
            once += _sending(each, speed)
        else:
            step += _exposed(each, speed, computing)
    latency = forward.repeats * step + once
    copies = cost.pieces.get(Part.REQUESTS, 1) * cost.pieces.get(Part.LAYERS, 1)
    return StageTime(latency=latency, busy=latency / forward.batch / copies)


def _exposed(cost: Cost, speed: DeviceSpeed, computing: float) -> float:
    """Time of sending that the rank cannot fill with computing."""
    sending = _sending(cost, speed)
    return max(sending * (1 - cost.hidden), sending - computing)


def _sending(cost: Cost, speed: DeviceSpeed) -> float:
    link = speed.link * 1e9 * _LINK_SHARE
    return cost.sent_bytes / link + cost.collectives * _COLLECTIVE_SECONDS
