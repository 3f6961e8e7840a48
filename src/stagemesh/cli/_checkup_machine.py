"""Checks of the machine: devices, memory, limits, and programs that some options need."""

from __future__ import annotations

import os
import resource
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from stagemesh.cli._checkup import Check, State
from stagemesh.config.host import Host, read_host
from stagemesh.plan.words import size_text
from stagemesh.runtime.descriptors import reachable_files

_GIB: Final = 2**30
_LEAST_MEMORY: Final = 2 * _GIB
"""Free memory below which not even the demo runs."""
_LEAST_SHM: Final = _GIB
"""What libraries of devices need of `/dev/shm`; containers often have 64 MiB."""
_LEAST_FILES: Final = 4096
"""Open files of one process: every connection and every edge takes some."""
_PROGRAMS: Final[Mapping[str, str]] = {
    "numactl": "`numa_bind`",
    "nvidia-cuda-mps-control": "sharing a GPU between processes by MPS",
}
"""Programs and what needs them."""


def machine_checks(root: Path = Path("/")) -> Iterator[Check]:
    """Check everything that the machine has to offer."""
    yield device_check(read_host(root), root, os.environ)
    yield memory_check(root / "proc" / "meminfo")
    yield shm_check(root / "dev" / "shm")
    yield memfd_check(os.memfd_create)
    yield files_check(*resource.getrlimit(resource.RLIMIT_NOFILE))
    yield ports_check(socket.create_server)
    for program, purpose in _PROGRAMS.items():
        yield program_check(program, purpose, shutil.which(program))


def device_check(host: Host, root: Path, environ: Mapping[str, str]) -> Check:
    """Say which devices are there, and whether all of them are hidden."""
    hidden = environ.get("CUDA_VISIBLE_DEVICES")
    if host.count is not None:
        shown = "" if hidden is None else f" (CUDA_VISIBLE_DEVICES={hidden})"
        message = f"{host.count} {host.kind}{shown}"
    elif hidden is not None and (root / "proc" / "driver" / "nvidia" / "gpus").is_dir():
        return Check(
            name="devices",
            state=State.WARNING,
            message=f"CUDA_VISIBLE_DEVICES={hidden} hides every GPU",
            help="list the GPUs that may be used, such as 0,1, or unset the variable",
        )
    else:
        memory = "" if host.memory_bytes is None else f" with {size_text(host.memory_bytes)}"
        message = f"{host.kind}{memory}; no GPU"
    return Check(name="devices", state=State.OK, message=message)


def memory_check(meminfo: Path) -> Check:
    """Check that enough memory is free."""
    free = _free_memory(meminfo)
    if free is None:
        message = f"`{meminfo}` does not tell"
        return Check(name="memory", state=State.WARNING, message=message)
    message = f"{size_text(free)} free"
    if free >= _LEAST_MEMORY:
        return Check(name="memory", state=State.OK, message=message)
    help_text = f"end other programs: models need {size_text(_LEAST_MEMORY)} and more"
    return Check(name="memory", state=State.WARNING, message=message, help=help_text)


def _free_memory(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if kib is None else int(kib) * 1024


def shm_check(folder: Path) -> Check:
    """Check the size of `/dev/shm`."""
    try:
        stats = os.statvfs(folder)
    except OSError as error:
        message = f"`{folder}` cannot be used: {(error.strerror or str(error)).lower()}"
        return Check(name="shared memory", state=State.WARNING, message=message)
    size = stats.f_blocks * stats.f_frsize
    message = f"`{folder}` has {size_text(size)}"
    if size >= _LEAST_SHM:
        return Check(name="shared memory", state=State.OK, message=message)
    return Check(
        name="shared memory",
        state=State.WARNING,
        message=f"{message}; libraries of several GPUs need more",
        help="start the container with --shm-size=8g or --ipc=host",
    )


def memfd_check(create: Callable[[str], int]) -> Check:
    """Check that memory without a name can be made, in which payloads lie."""
    try:
        os.close(create("stagemesh-doctor"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"memory without a name cannot be made: {reason}"
        help_text = "allow memfd_create in the sandbox, or use Linux 3.17 and newer"
        return Check(name="memfd", state=State.FAILURE, message=message, help=help_text)
    return Check(name="memfd", state=State.OK, message="memory without a name can be made")


def files_check(soft: int, hard: int) -> Check:
    """Check how many files a process may open: servers and stages raise their limit themselves."""
    name, most = "open files", reachable_files(soft, hard)
    message = f"{'unlimited' if soft < 0 else soft} for one process"
    if most != soft:
        message += f"; servers and stages raise it to {most}"
    if most < 0 or most >= _LEAST_FILES:
        return Check(name=name, state=State.OK, message=message)
    help_text = (
        f"raise the hard limit to {_LEAST_FILES}: `ulimit -Hn`, or the container's `--ulimit`"
    )
    return Check(name=name, state=State.WARNING, message=message, help=help_text)


def ports_check(listen: Callable[[tuple[str, int]], socket.socket]) -> Check:
    """Check that a port of this machine can be opened."""
    try:
        with listen(("127.0.0.1", 0)):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"no port of 127.0.0.1 can be opened: {reason}"
        help_text = "allow network sockets in the sandbox"
        return Check(name="ports", state=State.FAILURE, message=message, help=help_text)
    return Check(name="ports", state=State.OK, message="ports of 127.0.0.1 can be opened")


def program_check(program: str, purpose: str, found: str | None) -> Check:
    """Say whether a program is there that only some options need."""
    message = f"`{found}`" if found is not None else f"not installed; only {purpose} needs it"
    return Check(name=program, state=State.OK, message=message)
