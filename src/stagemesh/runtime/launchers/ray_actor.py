"""The half of a start by Ray that runs on another node: an actor that keeps one stage process.

Ray pickles this class by its name, the job's bytes, and what is returned; that is its own affair.
Whatever goes to the stage process and back takes our own streams, which this process makes as a
headless start does, so that the stage cannot tell who has started it.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from dataclasses import replace

import msgspec
from msgspec import Struct

from stagemesh.config.host import read_host
from stagemesh.errors import StagemeshError
from stagemesh.plan.fingerprint import fingerprint
from stagemesh.plan.save import from_json, to_json
from stagemesh.plan.values import Plan
from stagemesh.runtime.launchers.gate import Gate
from stagemesh.runtime.launchers.post import Post, Site
from stagemesh.runtime.launchers.quarters import Quarters
from stagemesh.runtime.launchers.ray_bundles import as_seen
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.transport.tls import TlsFiles, tls_context
from stagemesh.runtime.transport.token import Secret


class Job(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an actor is to run."""

    plan: str
    """The head's plan in its saved form."""
    stage: int
    """The stage."""
    replica: int
    """The replica."""
    master: tuple[str, int]
    """Where the head listens."""
    token: bytes
    """What it wants to hear."""
    environment: dict[str, str]
    """Variables of the process; some are secrets."""

    def __repr__(self) -> str:
        """Without its secrets."""
        return f"Job(stage={self.stage}, replica={self.replica})"


class StageActor:
    """One process of a replica, on the node where Ray has put this actor."""

    def serve(self, data: bytes) -> str | None:
        """Run the process; return how it ended, or `None` when the head had asked it to."""
        logging.basicConfig(level=logging.INFO)  # into the log that Ray keeps for this actor
        address = importlib.import_module("ray").util.get_node_ip_address()
        return asyncio.run(keep(msgspec.msgpack.decode(data, type=Job), address))


async def keep(job: Job, address: str) -> str | None:
    """Run a job on the host that others reach at `address`; see `StageActor.serve`."""
    plan = from_json(job.plan)
    if not isinstance(plan, Plan):
        return f"cannot be started by the stagemesh of its node: {plan[0].message}"
    try:
        where = ReplicaId(stage=job.stage, replica=job.replica)
        return await _keep(job, as_seen(plan, where, read_host().ids), address)
    except StagemeshError as error:
        return f"could not go on: {error}"


async def _keep(job: Job, plan: Plan, address: str) -> str | None:
    files = TlsFiles.of(plan.launch)
    if files is not None:
        tls_context(files, is_acceptor=False)
    secret = Secret(token=job.token)
    where = ReplicaId(stage=job.stage, replica=job.replica)
    quarters = Quarters(plan, [where])
    await quarters.open()
    gate = Gate(address, secret)
    site = Site(
        stage=replace(plan.stage(job.stage), env=job.environment),
        saved_plan=to_json(plan),
        fingerprint=fingerprint(plan),
        secret=secret,
        files=files,
        master=job.master,
        gate=gate,
        quarters=quarters,
        patience_s=float(plan.launch.init_timeout),
    )
    post = Post(site, job.replica, job.replica)
    try:
        await post.register()
        return await post.serve()
    finally:
        await post.close()
        await gate.close()
        await quarters.close()
