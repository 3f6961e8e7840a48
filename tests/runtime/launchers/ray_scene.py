"""A pipeline on a Ray cluster of two nodes, which are addresses of this host: what became of it.

Prints one JSON object. Nothing that Ray needs is left when it has ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import ray
from ray.cluster_utils import Cluster

from stagemesh.config.launch import LaunchOptions
from stagemesh.errors import RequestError
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.runtime.health import ReplicaState
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.params import SamplingParams
from stagemesh.testing.fake_plan import fake_plan, three_stages
from tests.waiting import WAIT_S

NODES: Final = {"127.0.0.2": 3, "127.0.0.3": 2}
"""CPUs of each node; an address of `localhost` would be rewritten by Ray to the outward one."""
STORE_BYTES: Final = 80 * 1024 * 1024


def actors() -> dict[str, Mapping[str, Any]]:
    """The actors that are alive, by id."""
    found: Mapping[str, Mapping[str, Any]] = ray._private.state.actors()
    return {name: actor for name, actor in found.items() if actor["State"] == "ALIVE"}


def stage_of(actor: Mapping[str, Any]) -> tuple[str, int]:
    """Where an actor is, and the process that it keeps."""
    pid = actor["Pid"]
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return actor["Address"]["IPAddress"], int(child)


def environ(pid: int) -> str:
    """The environment that a process was started with."""
    return Path(f"/proc/{pid}/environ").read_text(encoding="utf-8")


def is_last_rank(actor: Mapping[str, Any]) -> bool:
    """Whether an actor keeps a further rank, on the node that is filled last."""
    node, pid = stage_of(actor)
    words = Path(f"/proc/{pid}/cmdline").read_text(encoding="ascii").split("\0")
    return node == "127.0.0.3" and "stagemesh.runtime.rank_main" in words


def variables(pid: int) -> list[str | None]:
    """What a process has of the stage's own variables, and of those of this process."""
    found = dict(line.partition("=")[::2] for line in environ(pid).split("\0") if line)
    return [found.get(name) for name in ("COLOUR", "HF_TOKEN", "RANK")]


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what nobody tells of."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.05)


async def scene(address: str) -> dict[str, object]:
    """Run, kill, run again, and close."""
    stages = list(three_stages())
    stages[0] = replace(stages[0], env={"COLOUR": "red", "RANK": "7"})
    stages = [replace(stage, recovery=RecoveryPlan(restart_delay=0.0)) for stage in stages]
    stages[1] = replace(stages[1], ranks=3)
    launch = LaunchOptions(worker_backend="ray", ray_address=address)
    plan = fake_plan(stages)
    thinker, talker, vocoder = plan.stages
    talker = replace(talker, setup=replace(talker.setup, executor="ray"))
    plan = replace(plan, stages=(thinker, talker, vocoder), launch=launch)
    omni = AsyncOmni(plan)
    told: dict[str, object] = {}
    try:
        await omni.start(timeout_s=WAIT_S)
        told["outputs"] = len((await omni.run("hi")).outputs)
        found = [stage_of(actor) for actor in actors().values()]
        told["nodes"] = sorted({node for node, _ in found})
        told["processes"] = len({pid for _, pid in found})
        told["own"] = variables(next(pid for _, pid in found if "COLOUR=" in environ(pid)))
        victim = next(actor for actor in actors().values() if is_last_rank(actor))
        endless: SamplingParams = {"thinker": {"num_outputs": 1_000_000, "output_bytes": 0}}
        running = asyncio.ensure_future(omni.run("hi", sampling_params=endless))
        await asyncio.sleep(0)
        os.kill(victim["Pid"], signal.SIGKILL)
        try:
            await running
        except RequestError as error:
            told["error"] = {"text": str(error), "stage": error.stage, "replica": error.replica}
        await until(lambda: all(_serves(omni)))
        told["again"] = len((await omni.run("hi")).outputs)
    finally:
        await omni.close()
    told["joined"] = ray.is_initialized()
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    told["left"] = len(actors())
    groups = ray.util.placement_group_table().values()
    told["groups"] = sorted({group["state"] for group in groups})
    ray.shutdown()
    return told


def _serves(omni: AsyncOmni) -> list[bool]:
    replicas = (replica for stage in omni.health().stages for replica in stage.replicas)
    return [replica.state is ReplicaState.SERVING for replica in replicas]


def main() -> int:
    """Build the cluster, play, and take it down."""
    cluster = Cluster()
    try:
        for address, cpus in NODES.items():
            cluster.add_node(
                num_cpus=cpus,
                node_ip_address=address,
                object_store_memory=STORE_BYTES,
                include_dashboard=False,
            )
        # The nodes run already, so that a stage has it only when it is handed over.
        os.environ["HF_TOKEN"] = "secret-of-the-hub"
        told = asyncio.run(scene(cluster.address))
    finally:
        ray.shutdown()
        cluster.shutdown()
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
