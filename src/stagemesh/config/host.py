"""The devices of this machine, told without torch."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from stagemesh.spec.frozen import frozen

_DIGITS: Final = re.compile("[0-9]{1,6}")

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
"""The variable that says which GPUs there are for us, and in which order."""


@frozen
class Host:
    """What this machine offers to stages."""

    kind: Literal["cpu", "cuda"]
    """Kind of the devices."""
    count: int | None
    """How many are visible; `None` on CPU, where a device is a slot of the host."""
    memory_bytes: int | None
    """On CPU the memory of the whole host; `None` when it is not known, as for CUDA devices."""
    ids: tuple[str, ...] = ()
    """What the driver calls each visible device, by its logical number; empty on CPU."""
    system: str = sys.platform
    """Its operating system, as Python calls it."""


def read_host(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> Host:
    """Tell the devices from `/proc` and `/sys` below `root`, and from `CUDA_VISIBLE_DEVICES`."""
    ids = _visible_gpus(root / "proc/driver/nvidia/gpus", environ.get(VISIBLE))
    if ids:
        return Host(kind="cuda", count=len(ids), memory_bytes=None, ids=ids)
    limits = (
        _meminfo(root / "proc/meminfo"),
        _limit(root / "sys/fs/cgroup/memory.max"),
        _limit(root / "sys/fs/cgroup/memory/memory.limit_in_bytes"),
    )
    return Host(kind="cpu", count=None, memory_bytes=min(filter(None, limits), default=None))


def _visible_gpus(folder: Path, visible: str | None) -> tuple[str, ...]:
    """List the GPUs as CUDA does: up to the first entry that names none; none if one is twice."""
    try:
        present = len(list(folder.iterdir()))
    except OSError:
        return ()
    if visible is None:
        return tuple(str(index) for index in range(present))
    ids: list[str] = []
    for entry in (part.strip() for part in visible.split(",")):
        named = entry.startswith(("GPU-", "MIG-"))
        if not named and not (_DIGITS.fullmatch(entry) and int(entry) < present):
            break
        ids.append(entry if named else str(int(entry)))
    return tuple(ids) if len(set(ids)) == len(ids) else ()


def _meminfo(file: Path) -> int | None:
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("MemTotal:")), None)
    return None if kib is None else int(kib) * 1024


def _limit(file: Path) -> int | None:
    """Read a limit of a control group; `max` and an absent file mean that there is none."""
    try:
        text = file.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
