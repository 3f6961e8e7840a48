"""Which back end connects the groups of a stage: chosen here and nowhere else."""

from __future__ import annotations

import enum
import platform

from stagemesh.parallel.mesh import gloo, host_memory, nccl
from stagemesh.parallel.mesh.device_mesh import Connect


class Backend(enum.Enum):
    """The ways to connect ranks."""

    NCCL = "nccl"
    """Ranks that have a card of their own each."""
    HOST_MEMORY = "host_memory"
    """Ranks without cards on one host."""
    GLOO = "gloo"
    """Ranks without cards on several hosts."""


def choose(device_type: str, *, one_host: bool) -> Backend:
    """Return the back end of ranks with such devices.

    Memory is shared without fences, which the order of stores of x86 allows and others do not.
    """
    if device_type == "cuda":
        return Backend.NCCL
    if one_host and platform.machine() == "x86_64":
        return Backend.HOST_MEMORY
    return Backend.GLOO


CONNECT: dict[Backend, Connect] = {
    Backend.NCCL: nccl.connect,
    Backend.HOST_MEMORY: host_memory.connect,
    Backend.GLOO: gloo.connect,
}
"""How each of them connects a group."""
