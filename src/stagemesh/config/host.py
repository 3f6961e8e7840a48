"""The devices of this machine, told without torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What this machine offers to stages."""

    kind: Literal["cpu", "cuda"]
    """Kind of the devices."""
    count: int | None
    """How many are visible; `None` on CPU, where a device is a slot of the host."""
    memory_bytes: int | None
    """On CPU the memory of the whole host; `None` when it is not known, as for CUDA devices."""


def read_host(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> Host:
    """Tell the devices from `/proc` and `/sys` below `root`, and from `CUDA_VISIBLE_DEVICES`."""
    gpus = _visible_gpus(root / "proc/driver/nvidia/gpus", environ.get("CUDA_VISIBLE_DEVICES"))
    if gpus:
        return Host(kind="cuda", count=gpus, memory_bytes=None)
    limits = (
        _meminfo(root / "proc/meminfo"),
        _limit(root / "sys/fs/cgroup/memory.max"),
        _limit(root / "sys/fs/cgroup/memory/memory.limit_in_bytes"),
    )
    return Host(kind="cpu", count=None, memory_bytes=min(filter(None, limits), default=None))


def _visible_gpus(folder: Path, visible: str | None) -> int:
    """Count the GPUs as CUDA does: the list ends before the first entry that names no device."""
    try:
        present = len(list(folder.iterdir()))
    except OSError:
        return 0
    if visible is None:
        return present
    count = 0
    for entry in (part.strip() for part in visible.split(",")):
        named = entry.startswith(("GPU-", "MIG-"))
        if not named and not (entry.isascii() and entry.isdigit() and int(entry) < present):
            break
        count += 1
    return count


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
