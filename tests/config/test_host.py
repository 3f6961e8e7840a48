"""The devices of a machine, told from a tree of files like `/proc` and `/sys`."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagemesh.config.host import Host, read_host


def host(root: Path, files: dict[str, str], gpus: int = 0, visible: str | None = None) -> Host:
    """Read a made-up machine."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="ascii")
    for index in range(gpus):
        (root / f"proc/driver/nvidia/gpus/0000:0{index}:00.0").mkdir(parents=True)
    return read_host(root, {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})


MEMINFO = {"proc/meminfo": "MemTotal:       1024 kB\nMemFree:        1 kB\n"}


@pytest.mark.parametrize(
    ("files", "memory"),
    [
        ({}, None),
        (MEMINFO, 1024 * 1024),
        ({"proc/meminfo": "MemFree: 1 kB\n"}, None),
        ({**MEMINFO, "sys/fs/cgroup/memory.max": "max\n"}, 1024 * 1024),
        ({**MEMINFO, "sys/fs/cgroup/memory.max": "4096\n"}, 4096),
        ({**MEMINFO, "sys/fs/cgroup/memory/memory.limit_in_bytes": "8192\n"}, 8192),
        ({**MEMINFO, "sys/fs/cgroup/memory.max": "9223372036854771712\n"}, 1024 * 1024),
    ],
)
def test_a_cpu_host_has_the_memory_it_may_use(
    tmp_path: Path, files: dict[str, str], memory: int | None
) -> None:
    """The limit of the control group counts when it is lower."""
    assert host(tmp_path, files) == Host(kind="cpu", count=None, memory_bytes=memory)


@pytest.mark.parametrize(
    ("visible", "ids"),
    [
        (None, ("0", "1", "2")),
        ("0,2", ("0", "2")),
        ("2,0", ("2", "0")),
        (" 1 ", ("1",)),
        ("01", ("1",)),
        ("1,9,2", ("1",)),
        ("GPU-1f,MIG-2", ("GPU-1f", "MIG-2")),
        ("0,x", ("0",)),
        ("0,0.9", ("0",)),
        (f"0,{'9' * 5000}", ("0",)),
    ],
)
def test_a_cuda_host_lists_what_is_visible(
    tmp_path: Path, visible: str | None, ids: tuple[str, ...]
) -> None:
    """As CUDA does: in that order, and up to the first entry that names no device."""
    assert host(tmp_path, MEMINFO, 3, visible) == Host(
        kind="cuda", count=len(ids), memory_bytes=None, ids=ids
    )


@pytest.mark.parametrize("visible", ["", "-1", "none", "7", "0,0", "1,01", "GPU-1f,GPU-1f"])
def test_hidden_gpus_leave_a_cpu_host(tmp_path: Path, visible: str) -> None:
    """What is not visible is not there."""
    assert host(tmp_path, MEMINFO, 2, visible).kind == "cpu"


def test_this_machine_can_be_read() -> None:
    """Whatever it is."""
    assert read_host().kind in {"cpu", "cuda"}
