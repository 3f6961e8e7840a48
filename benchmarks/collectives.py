"""What a sum of 4 KB costs two ranks over memory that they share, beside gloo, and larger ones.

Both back ends run in the same two processes, in turn; times are medians in microseconds, and
`ratio` is the time over gloo for one unit of time over shared memory.

    python benchmarks/collectives.py
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import torch

from stagemesh.parallel.mesh.backends import CONNECT, Backend
from stagemesh.parallel.mesh.communicator import Communicator
from stagemesh.parallel.mesh.device_mesh import DeviceMesh
from stagemesh.parallel.mesh.host_memory import spin_s
from stagemesh.parallel.mesh.ranks import GlobalRank, Layout
from stagemesh.parallel.mesh.stores import FileStore

RANKS: Final = 2
SIZES: Final = (4 * 1024, 64 * 1024, 1024 * 1024)
ROUNDS: Final = 5
WITHIN_S: Final = 60.0


def one_round(over: Communicator, num_bytes: int) -> list[float]:
    """Microseconds of sums in a row, the first ones left out."""
    tensor, times = torch.ones(num_bytes // 4), []
    for _ in range(220 if num_bytes < SIZES[-1] else 30):
        began = time.perf_counter()
        over.all_reduce(tensor)
        times.append((time.perf_counter() - began) * 1e6)
    return times[len(times) // 10 :]


def be_rank(rank: int, folder: str) -> dict[str, object]:
    """Measure all sizes over both back ends, in turn."""
    layout = Layout(world_size=RANKS, groups={"tp": (tuple(range(RANKS)),)})
    meshes = {
        backend: DeviceMesh.create(
            GlobalRank(rank),
            layout,
            FileStore(str(Path(folder) / backend.value), RANKS),
            connect=CONNECT[backend],
            within_s=WITHIN_S,
        )
        for backend in (Backend.HOST_MEMORY, Backend.GLOO)
    }
    told: dict[str, object] = {"ranks": RANKS, "spin_us": spin_s(RANKS) * 1e6}
    for num_bytes in SIZES:
        times: dict[Backend, list[float]] = {backend: [] for backend in meshes}
        for _ in range(ROUNDS):
            for backend, mesh in meshes.items():
                times[backend] += one_round(mesh.over("tp"), num_bytes)
        shared, gloo = (statistics.median(times[each]) for each in times)
        told[f"all_reduce_{num_bytes}"] = {
            "shared_memory_us": round(shared, 1),
            "gloo_us": round(gloo, 1),
            "ratio": round(gloo / shared, 2),
        }
    for mesh in meshes.values():
        mesh.close()
    return told


def main() -> None:
    """Fork the second rank, and print what the first has measured."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        told = be_rank(0 if pid else 1, folder)
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
