"""A headless start: it runs replicas of one stage for a head somewhere else.

It has planned for itself, and says what of its plan the head's must equal. Each replica is a
process of this host with two streams: one here, and through this process one to the head, which
speaks to it as to its own. Sockets are made here, under the token, and handed to the process; data
does not pass through. When a stream to the head ends, so does the process; a process that dies is
told of, and comes back as the restart policy allows. Without a head there is nothing to do here.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from typing import Final

from stagemesh.config.launch import NO_STAGE
from stagemesh.errors import DiagnosticError, StagemeshError, StartupError
from stagemesh.plan.fingerprint import fingerprint
from stagemesh.plan.save import to_json
from stagemesh.plan.values import Plan, StagePlan
from stagemesh.runtime.checks import check_executable
from stagemesh.runtime.launchers.gate import Gate
from stagemesh.runtime.launchers.post import NoHeadError, Post, Site
from stagemesh.runtime.launchers.quarters import Quarters, here
from stagemesh.runtime.replica import policy_of
from stagemesh.runtime.transport.tls import TlsFiles, tls_context
from stagemesh.runtime.transport.token import check_bind, read_secret

_log: Final = logging.getLogger(__name__)


class Worker:
    """All replicas of a headless start."""

    def __init__(self, plan: Plan) -> None:
        """Start nothing yet.

        Raises `DiagnosticError` when the plan cannot be run, or it may not listen or has no token.
        """
        if found := check_executable(plan):
            raise DiagnosticError(found)
        launch = plan.launch
        assert launch.omni_master_address is not None, "`--headless` needs it"
        assert launch.omni_master_port is not None, "`--headless` needs it"
        assert isinstance(launch.stage_id, int), f"`--headless` excludes `{NO_STAGE}`"
        self._plan = plan
        self._stage: StagePlan = plan.stage(launch.stage_id)
        self._master = (launch.omni_master_address, launch.omni_master_port)
        self._secret = read_secret(launch)
        self._files = TlsFiles.of(launch)
        if self._files is not None:
            tls_context(self._files, is_acceptor=False)
        self._address = launch.omni_replica_address or _way_to(*self._master)
        if bare := check_bind(self._address, self._secret, is_insecure=launch.insecure_no_token):
            raise DiagnosticError(bare)

    async def run(self) -> None:
        """Run until the head has asked all replicas to stop.

        Raises `DiagnosticError` when this host has not what the stage is bound to, and
        `StartupError` when the head does not take a replica or is gone, or when one has died too
        often. Nothing is left running then, nor when it is cancelled.
        """
        quarters = Quarters(self._plan, here(self._plan))
        try:
            await quarters.open()
            await self._run(quarters)
        finally:
            await quarters.close()

    async def _run(self, quarters: Quarters) -> None:
        gate = Gate(self._address, self._secret)
        site = Site(
            stage=self._stage,
            saved_plan=to_json(self._plan),
            fingerprint=fingerprint(self._plan),
            secret=self._secret,
            files=self._files,
            master=self._master,
            gate=gate,
            quarters=quarters,
            patience_s=float(self._plan.launch.init_timeout),
        )
        try:
            async with asyncio.TaskGroup() as group:
                for index in range(self._plan.launch.omni_dp_size_local):
                    group.create_task(self._keep(site, index))
        except* StagemeshError as failures:
            raise failures.exceptions[0] from None
        finally:
            await gate.close()

    async def _keep(self, site: Site, index: int) -> None:
        """Run one replica, again and again as its policy allows, until it is asked to stop."""
        policy, restarts = policy_of(self._stage.setup.recovery), list[float]()
        replica: int | None = None
        while True:
            post = Post(site, index, replica)
            try:
                replica = await post.register()
                why = await post.serve()
            except NoHeadError as error:
                raise StartupError(str(error), stage=self._stage.name) from error
            finally:
                await post.close()
            if why is None:
                return
            now = time.monotonic()
            delay = policy.delay_s(restarts, now)
            restarts.append(now)
            if delay is None:
                raise StartupError(f"{post.who} stays down: it {why}", stage=self._stage.name)
            _log.warning("%s %s; it comes back in %.1f s", post.who, why, delay)
            await asyncio.sleep(delay)


async def run_headless(plan: Plan) -> None:
    """Run a headless start until its head has stopped it, or a signal has; raises as `Worker`."""
    loop = asyncio.get_running_loop()
    work = loop.create_task(Worker(plan).run())
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        if not work.cancelled():
            raise
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def _way_to(address: str, port: int) -> str:
    """The address of this host on the way to another; nothing is sent."""
    try:
        entry = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(entry[0], socket.SOCK_DGRAM) as probe:
            probe.connect(entry[4])
            return str(probe.getsockname()[0])
    except OSError as error:
        raise StartupError(f"there is no way to `{address}`: {error.strerror}") from error
