"""Binding of processes to CPUs and NUMA nodes, by `numactl`, as the plan says.

What this host does not have is told before anything starts, and for all stages together.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from stagemesh.plan.setup import RankBinding
from stagemesh.plan.values import DevicesPlan, Plan, StagePlan
from stagemesh.runtime.replica import ReplicaId
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer, Origin

PROGRAM: Final = "numactl"
_SWITCH: Final = "numa_bind"
_NODES: Final = "numa_bind_nodes"
_CPUS: Final = "numa_bind_cpus"


@frozen
class NumaHost:
    """What this host has for binding."""

    program: str | None
    """Where `numactl` is."""
    cpus: frozenset[int]
    """CPUs that this process may use, and so may what it starts."""
    nodes: frozenset[int]
    """Nodes whose memory it may use."""
    device_nodes: Mapping[int, int]
    """Node of each device of the plan of which it is known."""


def read_numa(devices: DevicesPlan, root: Path = Path("/")) -> NumaHost:
    """Look at this host, below `root`."""
    return NumaHost(
        program=shutil.which(PROGRAM),
        cpus=frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset(),
        nodes=_own_nodes(root / "proc/self/status"),
        device_nodes=_device_nodes(devices, root),
    )


def numbers(text: str) -> frozenset[int]:
    """Numbers in a list such as `0,4-7`."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def check_bindings(plan: Plan, here: Sequence[ReplicaId], host: NumaHost) -> tuple[Diagnostic, ...]:
    """Say which bindings of the replicas that run here cannot be had."""
    bound = [stage for stage in plan.stages if stage.setup.numa is not None]
    local = {where.stage for where in here}
    stages = [stage for stage in bound if stage.stage_id in local]
    if stages and host.program is None:
        names = ", ".join(f"`{stage.name}`" for stage in stages)
        return (
            Diagnostic(
                code="RT050",
                message=f"`{_SWITCH}` of {names} needs `{PROGRAM}`, which is not installed",
                origin=_origin(stages[0], _SWITCH),
                help=f"install `{PROGRAM}`, or write `{_SWITCH}: false`",
            ),
        )
    return tuple(
        finding
        for stage in stages
        for finding in _wrong(
            stage, [each.replica for each in here if each.stage == stage.stage_id], host
        )
    )


def binding(
    stage: StagePlan, replica: int, ranks: Sequence[int], host: NumaHost
) -> tuple[str, ...]:
    """Return the command that binds the process of some ranks of a replica; empty for none.

    Where a list names CPUs they are what it runs on, else those of the node are.
    """
    numa = stage.setup.numa
    if numa is None or host.program is None:
        return ()
    own = [numa.replicas[replica][rank] for rank in ranks]
    nodes = _joined(_node(stage, replica, rank, host) for rank in ranks)
    cpus = ",".join(dict.fromkeys("".join(each.cpus.split()) for each in own if each.cpus))
    where = (f"--physcpubind={cpus}",) if cpus else (f"--cpunodebind={nodes}",)
    return (host.program, *where, *((f"--membind={nodes}",) if nodes else ()))


def _wrong(stage: StagePlan, replicas: Sequence[int], host: NumaHost) -> Iterator[Diagnostic]:
    """Say what a stage is bound to that this host does not have, each thing once."""
    assert stage.setup.numa is not None, "it is bound"
    entries = {each: stage.setup.numa.replicas[each] for each in replicas}
    own = [entry for ranks in entries.values() for entry in ranks]
    cpus = frozenset[int]().union(*(numbers(each.cpus) for each in own if each.cpus))
    nodes = frozenset(each.node for each in own if each.node is not None)
    if absent := cpus - host.cpus:
        yield _absent(stage, _CPUS, "CPU", absent, host.cpus)
    if absent := nodes - host.nodes:
        yield _absent(stage, _NODES, "node", absent, host.nodes)
    for replica, ranks in entries.items():
        for rank, entry in enumerate(ranks):
            if _is_loose(entry) and _node(stage, replica, rank, host) is None:
                device = stage.replicas[replica].ranks[rank].device
                yield Diagnostic(
                    code="RT052",
                    message=f"`{_SWITCH}` of `{stage.name}`: the NUMA node of device `{device}`"
                    " is not known",
                    origin=_origin(stage, _SWITCH),
                    help=f"name nodes with `{_NODES}`, or CPUs with `{_CPUS}`",
                )
                return


def _absent(
    stage: StagePlan, field: str, what: str, absent: frozenset[int], there: frozenset[int]
) -> Diagnostic:
    return Diagnostic(
        code="RT051",
        message=f"`{field}` of `{stage.name}`: {what} `{min(absent)}` cannot be used here",
        origin=_origin(stage, field),
        help=f"this process may use `{_listed(there)}`; a container or `taskset` may hide others",
    )


def _is_loose(entry: RankBinding) -> bool:
    return entry.node is None and entry.cpus is None


def _node(stage: StagePlan, replica: int, rank: int, host: NumaHost) -> int | None:
    """The node of a rank: as was said, or that of its device."""
    assert stage.setup.numa is not None, "it is bound"
    said = stage.setup.numa.replicas[replica][rank].node
    device = stage.replicas[replica].ranks[rank].device
    return host.device_nodes.get(device) if said is None else said


def _joined(nodes: Iterator[int | None]) -> str:
    return ",".join(dict.fromkeys(str(node) for node in nodes if node is not None))


def _listed(found: frozenset[int]) -> str:
    """Write numbers as `numbers` reads them."""
    ranges: list[list[int]] = []
    for number in sorted(found):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ",".join("-".join(map(str, each)) for each in ranges)


def _origin(stage: StagePlan, field: str) -> Origin | None:
    value = stage.values.get(field)
    return None if value is None else Origin(layer=Layer[value.layer.upper()], source=value.origin)


def _own_nodes(status: Path) -> frozenset[int]:
    try:
        lines = status.read_text(encoding="ascii").splitlines()
    except OSError:
        return frozenset()
    listed = (line.split()[1] for line in lines if line.startswith("Mems_allowed_list:"))
    return numbers(next(listed, "0"))


def _device_nodes(devices: DevicesPlan, root: Path) -> dict[int, int]:
    """Nodes of GPUs, which have the numbers that their places on the bus have.

    CUDA may count the faster ones first: where they differ, nothing is known unless it is told not
    to.
    """
    try:
        gpus = sorted((root / "proc/driver/nvidia/gpus").iterdir())
        models = {_model(gpu) for gpu in gpus}
    except OSError:
        return {}
    if len(models) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return {}
    found = {}
    for device, name in enumerate(devices.ids):
        if name.isdigit() and int(name) < len(gpus):
            node = _node_of(root / "sys/bus/pci/devices" / gpus[int(name)].name.lower())
            if node is not None:
                found[device] = node
    return found


def _model(gpu: Path) -> str:
    lines = (gpu / "information").read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if line.startswith("Model:")), "")


def _node_of(device: Path) -> int | None:
    """The node that the firmware names; a negative number is none."""
    try:
        node = int((device / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None
