"""A host with GPUs as far as MPS is concerned, and stages that share them.

A program that stands in for NVIDIA's keeps its state in the pipe directory; whatever runs a stage
and has that directory in its environment counts as a client.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from stagemesh.plan.setup import MpsPlan, RecoveryPlan
from stagemesh.plan.values import DevicesPlan, Plan, RankPlan, ReplicaPlan, StagePlan
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.runtime.started import POLL_S, Started, wait_for_exit

PIPE: Final = "CUDA_MPS_PIPE_DIRECTORY"
NAME: Final = "nvidia-cuda-mps-control"


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """One that has been started, as it has written down itself."""

    parent: int
    own: int
    server: int
    visible: str
    pipe: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """A host with GPUs and a program for MPS."""

    program: Path
    runtime: Path

    def behave(self, way: str) -> None:
        """From now on the program is in this mood."""
        self.program.with_name("mps.ways").write_text(way)

    @property
    def daemons(self) -> list[Daemon]:
        """All that there have been."""
        file = self.program.with_name("mps.daemons")
        lines = file.read_text().splitlines() if file.exists() else []
        return [
            Daemon(parent=int(parent), own=int(own), server=int(server), visible=seen, pipe=pipe)
            for parent, own, server, seen, pipe in map(str.split, lines)
        ]

    def is_clean(self) -> bool:
        """Whether nothing of a daemon of ours is left."""
        for daemon in self.daemons:
            for pid in (daemon.own, daemon.server, daemon.parent):
                wait_for_exit(pid)
        return list(self.runtime.iterdir()) == []

    @contextmanager
    def others(self) -> Iterator[Daemon]:
        """A daemon that somebody else has started, and stops."""
        pipe = self.program.parent / "theirs"
        pipe.mkdir()
        environment = {**os.environ, PIPE: str(pipe)}
        with subprocess.Popen([self.program, "-f"], env=environment, process_group=0) as process:
            try:
                while not (pipe / "control").exists():
                    assert process.poll() is None
                    time.sleep(POLL_S)
                number = [each.own for each in self.daemons].index(process.pid)
                yield self.daemons[number]
                assert process.poll() is None, "it was stopped"
            finally:
                os.killpg(process.pid, signal.SIGKILL)


def on_gpus(plan: Plan, devices: Mapping[str, int], wishes: Mapping[str, str | None]) -> Plan:
    """Put stages on GPUs, and let those share theirs that have a wish."""

    def changed(stage: StagePlan) -> StagePlan:
        device, off = devices.get(stage.name, 0), MpsPlan(off_because="it does not share")
        on = MpsPlan(off_because=None, pipe_directories=(wishes.get(stage.name),))
        ranks = (RankPlan(rank=0, device=device, coords={}),)
        return replace(
            stage,
            replicas=(ReplicaPlan(index=0, ranks=ranks),),
            setup=replace(stage.setup, mps=on if stage.name in wishes else off),
        )

    return replace(
        plan,
        stages=tuple(changed(stage) for stage in plan.stages),
        devices=DevicesPlan(
            kind="cuda", count=2, memory_bytes=None, imaginary=False, ids=("4", "5")
        ),
        cuda_mps=True,
    )


def sharing(
    thinker: str | None = None,
    talker: str | None = None,
    *,
    args: Mapping[str, object] | None = None,
    bridge: str | None = None,
) -> Plan:
    """Thinker and talker share the second GPU, the vocoder is on the first, and does not share."""
    stages = [replace(each, recovery=RecoveryPlan(restart_delay=0.0)) for each in three_stages()]
    stages[1] = replace(stages[1], args=args or {})
    devices = {"thinker": 1, "talker": 1}
    plan = fake_plan(stages, bridge=bridge)
    return on_gpus(plan, devices, {"thinker": thinker, "talker": talker})


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


def pipes(started: Started) -> list[str | None]:
    """Where each stage looks for a daemon."""
    return [environment_of(started.pid(stage)).get(PIPE) for stage in range(3)]
