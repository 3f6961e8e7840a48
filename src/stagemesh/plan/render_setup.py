"""Rows of a rendered plan: devices, sessions and the processes of stages, where they matter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from stagemesh.plan.kernels import BACKEND, DEFAULT, PER_ROLE
from stagemesh.plan.setup import (
    KernelsPlan,
    MpsPlan,
    NumaPlan,
    RankBinding,
    RecoveryPlan,
    StageSetup,
)
from stagemesh.plan.values import Plan
from stagemesh.plan.words import size_text

Row: TypeAlias = tuple[str, str, str]


def device_rows(plan: Plan) -> Iterator[Row]:
    """What the driver calls the devices, where it counts otherwise."""
    ids = plan.devices.ids
    if ids != tuple(str(number) for number in range(len(ids))):
        for number, name in enumerate(ids):
            yield "devices", f"device {number}", f"is {name} of this host"


def session_rows(plan: Plan) -> Iterator[Row]:
    """Frontends, groups of replicas, and the sessions that they hold."""
    duplex = plan.session.duplex
    if duplex is None:
        return
    held = f"{duplex.max_sessions} sessions"
    if duplex.max_sessions_per_replica is not None:
        held += f", {duplex.max_sessions_per_replica} a replica"
    yield "session", f"duplex {duplex.replica_policy}", held
    for number, frontend in enumerate(duplex.frontends):
        owned = f"groups {','.join(map(str, frontend.groups))}, " if frontend.groups else ""
        holds = f"{owned}quota {frontend.quota}, holds {frontend.capacity}"
        yield "session", f"frontend {number}", holds
    for number, group in enumerate(duplex.groups):
        pairs = zip(plan.stages, group.replicas, strict=True)
        replicas = " ".join(f"{stage.name}[{replica}]" for stage, replica in pairs)
        yield "session", f"group {number}", f"{replicas}, frontend {group.frontend}"


def setup_rows(plan: Plan) -> Iterator[Row]:
    """What was decided about the processes of the stages, but for what is always so."""
    for stage in plan.stages:
        if stage.setup.host is not None:
            host = plan.stage(stage.setup.host).name
            yield "setup", stage.name, f"runs in the processes of {host}"
        for text in _of(stage.setup):
            yield "setup", stage.name, text


def _of(setup: StageSetup) -> Iterator[str]:
    if setup.runner != "v1":
        yield f"model runner {setup.runner}"
    if setup.executor not in ("uni", "mp"):
        yield f"ranks are started by {setup.executor}"
    if setup.share is not None:
        memory = setup.share.memory_bytes
        known = "" if memory is None else f": {size_text(memory)}"
        yield f"may use {setup.share.share:g} of a device{known}"
    if setup.numa is not None:
        yield from _numa(setup.numa)
    if setup.mps is not None:
        yield from _mps(setup.mps)
    yield from _kernels(setup.kernels)
    yield from _recovery(setup.recovery)


def _numa(numa: NumaPlan) -> Iterator[str]:
    whose = "its engine" if numa.binds == "engine" else "its workers"
    for replica, ranks in enumerate(numa.replicas):
        bound = " | ".join(_bound(rank) for rank in ranks)
        yield f"NUMA: {whose} of replica {replica} on {bound}"


def _bound(rank: RankBinding) -> str:
    node = "the device's node" if rank.node is None else f"node {rank.node}"
    return node if rank.cpus is None else f"{node}, CPUs {rank.cpus}"


def _mps(mps: MpsPlan) -> Iterator[str]:
    if mps.off_because is not None:
        yield f"CUDA MPS is off: {mps.off_because}"
    for replica, directory in enumerate(mps.pipe_directories):
        daemon = "the daemon of the environment, or a private one"
        if directory is not None:
            daemon = f"the daemon {directory}" if directory else "a private daemon"
        yield f"CUDA MPS of replica {replica}: {daemon}"


def _recovery(recovery: RecoveryPlan) -> Iterator[str]:
    usual = RecoveryPlan()
    limits = replace(recovery, restart=usual.restart, step_timeout=usual.step_timeout)
    if recovery.restart == "never":
        yield "a replica that died is not started again"
    elif limits != usual:
        yield (
            f"a replica is started again up to {recovery.max_restarts} times in"
            f" {recovery.restart_window} s, after {recovery.restart_delay:g} s"
        )
    if recovery.step_timeout != usual.step_timeout:
        yield f"a step may take {recovery.step_timeout:g} s"


def _kernels(kernels: KernelsPlan) -> Iterator[str]:
    roles = kernels.attention.get(PER_ROLE)
    chosen: Mapping[str, object] = {
        "attention": kernels.attention.get(DEFAULT),
        **{f"attention {role}": choice for role, choice in _items(roles)},
        "mixture of experts": kernels.moe,
        "linear": kernels.linear,
    }
    for layers, choice in chosen.items():
        if choice is not None:
            yield f"kernels of {layers}: {dict(_items(choice)).get(BACKEND, choice)}"


def _items(value: object) -> Iterable[tuple[str, object]]:
    return value.items() if isinstance(value, Mapping) else ()
