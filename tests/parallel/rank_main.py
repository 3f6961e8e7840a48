"""The process of a pool: forks its ranks, each of which runs cases until nobody asks any more.

What takes long to import is imported once, before the ranks part.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import traceback
from typing import Any

import diffusers.models.autoencoders.autoencoder_kl  # noqa: F401  for all ranks at once

from stagemesh.parallel.mesh.backends import CONNECT, Backend
from stagemesh.parallel.mesh.device_mesh import DeviceMesh
from stagemesh.parallel.mesh.ranks import GlobalRank, Layout
from stagemesh.parallel.mesh.stores import PrefixStore, TCPStore
from stagemesh.plan.groups import slices


def layout_of(size: int) -> Layout:
    """All ranks as one group, and as rings of Ulysses groups of two."""
    mesh = (("ring", size // 2), ("ulysses", 2))
    groups = {name: slices(mesh, {name}) for name, _ in mesh}
    own = tuple((rank,) for rank in range(size))
    return Layout(world_size=size, groups={**groups, "all": (tuple(range(size)),), "solo": own})


def serve(rank: int, size: int, told: dict[str, Any], end: socket.socket) -> None:
    """Be a rank."""
    meshes = {}
    for backend in (Backend.HOST_MEMORY, Backend.GLOO):
        store = TCPStore("127.0.0.1", told["port"], is_master=False)
        meshes[backend.value] = DeviceMesh.create(
            GlobalRank(rank),
            layout_of(size),
            PrefixStore(backend.value, store),
            connect=CONNECT[backend],
            within_s=told["within_s"],
        )
    lines = end.makefile("rwb")
    said: dict[str, object] = {"value": os.getpid()}
    while True:
        lines.write(json.dumps(said).encode() + b"\n")
        lines.flush()
        try:
            asked = lines.readline()
        except ConnectionResetError:  # who asks has failed
            break
        if not asked:
            break
        request = json.loads(asked)
        module, _, name = request["case"].rpartition(".")
        case = vars(importlib.import_module(f"tests.parallel.{module}"))[name]
        try:
            said = {"value": case(meshes, **request["given"])}
        except Exception:  # noqa: BLE001  the edge of the process: it is told with its traceback
            said = {"error": traceback.format_exc()}
    for mesh in meshes.values():
        mesh.close()


def main() -> None:
    """Fork the ranks and wait for them."""
    told = json.loads(sys.argv[1])
    ends = [socket.socket(fileno=fd) for fd in told["fds"]]
    pids = []
    for rank, end in enumerate(ends):
        pid = os.fork()
        if pid == 0:
            for other in ends:
                if other is not end:
                    other.close()
            serve(rank, len(ends), told, end)
            os._exit(0)
        pids.append(pid)
    for end in ends:
        end.close()
    for pid in pids:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
