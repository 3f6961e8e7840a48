"""The half of a start by Ray that runs on another node: an actor that keeps one process.

Ray pickles this class by its name, the job's bytes, and what is returned; that is its own affair.
Whatever goes to the stage process and back takes our own streams, which this process makes as a
headless start does, so that the stage cannot tell who has started it.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from dataclasses import replace

from stagemesh.config.host import read_host
from stagemesh.errors import StagemeshError
from stagemesh.plan.fingerprint import fingerprint
from stagemesh.plan.save import from_json, to_json
from stagemesh.plan.values import Plan
from stagemesh.runtime.launchers.gate import Gate
from stagemesh.runtime.launchers.post import Post, Site
from stagemesh.runtime.launchers.quarters import Quarters
from stagemesh.runtime.launchers.rank_keeper import RankKeeper, RankPlace
from stagemesh.runtime.launchers.ray_bundles import as_seen
from stagemesh.runtime.launchers.ray_jobs import Job, RankJob, decode
from stagemesh.runtime.messages import PROTOCOL, Setup
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.transport.tls import TlsFiles, tls_context
from stagemesh.runtime.transport.token import Secret


class StageActor:
    """One process of a replica, on the node where Ray has put this actor."""

    def serve(self, data: bytes) -> str | None:
        """Run the process; return how it ended, as far as nobody else has been told of it."""
        logging.basicConfig(level=logging.INFO)  # into the log that Ray keeps for this actor
        address = importlib.import_module("ray").util.get_node_ip_address()
        return asyncio.run(keep(decode(data), address))


async def keep(job: Job | RankJob, address: str) -> str | None:
    """Run a job on the host that others reach at `address`; see `StageActor.serve`."""
    plan = from_json(job.plan)
    if not isinstance(plan, Plan):
        return f"cannot be started by the stagemesh of its node: {plan[0].message}"
    where = ReplicaId(stage=job.stage, replica=job.replica)
    try:
        if isinstance(job, RankJob):
            await _keep_rank(job, as_seen(plan, where, read_host().ids, rank=job.rank), address)
            return None
        rank = 0 if job.ranks else None
        return await _keep(job, as_seen(plan, where, read_host().ids, rank=rank), address)
    except StagemeshError as error:
        return f"could not go on: {error}"


async def _keep_rank(job: RankJob, plan: Plan, address: str) -> None:
    setup = Setup(
        protocol=PROTOCOL,
        plan=to_json(plan),
        stage=job.stage,
        replica=job.replica,
        rank=job.rank,
    )
    place = RankPlace(
        plan=plan,
        setup=setup,
        stage=replace(plan.stage(job.stage), env=job.environment),
        master=job.master,
        links=job.links,
        secret=Secret(token=job.token),
        is_near=job.master[0] == address,
    )
    await RankKeeper(place).serve()


async def _keep(job: Job, plan: Plan, address: str) -> str | None:
    files = TlsFiles.of(plan.launch)
    if files is not None:
        tls_context(files, is_acceptor=False)
    secret = Secret(token=job.token)
    where = ReplicaId(stage=job.stage, replica=job.replica)
    quarters = Quarters(plan, [where])
    await quarters.open()
    gate = Gate(address, secret, is_near=bool(job.ranks))
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
        ranks=job.ranks,
    )
    post = Post(site, job.replica, job.replica)
    try:
        await post.register()
        return await post.serve()
    finally:
        await post.close()
        await gate.close()
        await quarters.close()
