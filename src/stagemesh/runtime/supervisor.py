"""Starts every stage process of a plan, tells them of one another, and stops them all.

Starting is a transaction: either every stage is ready within the deadline, or everything that was
started is gone again when the error is raised. Stopping is a request, then SIGTERM to the group,
then SIGKILL, each with its deadline.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterable
from typing import Final

from stagemesh.errors import StartupError
from stagemesh.plan.save import to_json
from stagemesh.plan.values import Plan, StagePlan
from stagemesh.runtime.messages import PROTOCOL, PeerUp, Setup, Stop, Welcome
from stagemesh.runtime.process import StageProcess
from stagemesh.spec.frozen import frozen
from stagemesh.spec.registry import ENGINES

_STOP_S: Final = 5.0
_TERMINATE_S: Final = 2.0
_KILL_S: Final = 10.0
_log: Final = logging.getLogger(__name__)


@frozen
class ReplicaId:
    """One replica of one stage."""

    stage: int
    """The stage's id."""
    replica: int
    """Number of the replica."""


class Supervisor:
    """The owner of all stage processes of one plan. All methods belong to one loop."""

    def __init__(self, plan: Plan, on_down: Callable[[ReplicaId, str], None]) -> None:
        """`on_down` hears of every replica that ends unasked, with the reason."""
        self._plan = plan
        self._saved = to_json(plan)
        self._on_down = on_down
        self._processes: dict[ReplicaId, StageProcess] = {}
        self._stopping = False

    @property
    def pids(self) -> dict[ReplicaId, int]:
        """The processes that run."""
        return {where: process.pid for where, process in self._processes.items() if process.alive}

    async def start(self, deadline_s: float) -> dict[ReplicaId, socket.socket]:
        """Start all stages; return the caller's stream to each.

        Raises `StartupError`, with everything stopped, when a stage fails or `deadline_s` passes.
        """
        callers: dict[ReplicaId, socket.socket] = {}
        try:
            for stage in self._plan.stages:
                for replica in stage.replicas:
                    self._spawn(stage, ReplicaId(stage=stage.stage_id, replica=replica.index))
            self._introduce(callers)
            await self._all_ready(deadline_s)
        except BaseException:
            for caller in callers.values():
                caller.close()
            await self._bury()
            raise
        return callers

    async def stop(self) -> None:
        """Stop all stages; when this returns or is cancelled none is left running."""
        self._stopping = True
        try:
            for process in self._processes.values():
                if process.alive:
                    process.control.send(Stop())
            if await self._reaped(_STOP_S):
                return
            for process in self._processes.values():
                process.kill(signal.SIGTERM)
            await self._reaped(_TERMINATE_S)
        finally:
            self.kill()
        await self._bury()

    def kill(self) -> None:
        """End every stage process at once; may be called from any thread."""
        self._stopping = True
        for process in self._processes.values():
            process.kill()

    def lost(self, where: ReplicaId, reason: str | None) -> None:
        """A stream to that replica has ended: whatever is left of it goes as well."""
        self._processes[where].lost(reason)

    def _spawn(self, stage: StagePlan, where: ReplicaId) -> None:
        (engine,) = ENGINES.load(stage.engine)
        if stage.world_size > 1 and not engine.owns_ranks:
            raise StartupError(
                f"stage `{stage.name}` needs `{stage.world_size}` ranks, which engine"
                f" `{stage.engine}` does not start",
                stage=stage.name,
            )

        def on_exit(reason: str) -> None:
            if not self._stopping:
                self._on_down(where, self._told(where, reason))

        process = StageProcess(stage.name, where.replica, stage.env, on_exit)
        self._processes[where] = process
        setup = Setup(protocol=PROTOCOL, plan=self._saved, stage=where.stage, replica=where.replica)
        process.control.send(setup)

    def _introduce(self, callers: dict[ReplicaId, socket.socket]) -> None:
        """Give every pair that talks its stream."""
        for where, process in self._processes.items():
            ours, theirs = socket.socketpair()
            callers[where] = ours
            process.control.send(PeerUp(stage=None, replica=0), (theirs.detach(),))
        for edge in self._plan.edges:
            for source in self._replicas(edge.source):
                for target in self._replicas(edge.target):
                    self._connect(source, target)
        for process in self._processes.values():
            process.control.send(Welcome())

    def _connect(self, source: ReplicaId, target: ReplicaId) -> None:
        one, other = socket.socketpair()
        for where, peer, end in ((source, target, one), (target, source, other)):
            hello = PeerUp(stage=peer.stage, replica=peer.replica)
            self._processes[where].control.send(hello, (end.detach(),))

    def _replicas(self, stage: int) -> Iterable[ReplicaId]:
        return [where for where in self._processes if where.stage == stage]

    async def _all_ready(self, deadline_s: float) -> None:
        missing = dict(self._processes)
        waits = {
            future for process in missing.values() for future in (process.ready, process.exited)
        }
        loop = asyncio.get_running_loop()
        deadline = loop.time() + deadline_s
        while missing:
            done, waits = await asyncio.wait(
                waits, timeout=deadline - loop.time(), return_when=asyncio.FIRST_COMPLETED
            )
            for where, process in self._processes.items():
                if process.exited.done():
                    reason = self._told(where, process.exited.result())
                    raise StartupError(reason, stage=self._plan.stage(where.stage).name)
                if process.ready.done():
                    missing.pop(where, None)
            if missing and not done:
                names = ", ".join(process.name for process in missing.values())
                first = self._plan.stage(next(iter(missing)).stage).name
                raise StartupError(f"not ready after {deadline_s:g} s: {names}", stage=first)

    async def _bury(self) -> None:
        """Kill what is left; a process that even so does not end is told of in the log."""
        self.kill()
        if not await self._reaped(_KILL_S):
            for process in self._processes.values():
                if process.alive:
                    _log.error("%s, process `%d`, does not end", process.name, process.pid)

    async def _reaped(self, within_s: float) -> bool:
        waits = [process.exited for process in self._processes.values() if process.alive]
        if not waits:
            return True
        _, left = await asyncio.wait(waits, timeout=within_s)
        return not left

    def _told(self, where: ReplicaId, reason: str) -> str:
        process = self._processes[where]
        words = process.last_words()
        return f"{process.name} {reason}" + (f"\n{words}" if words else "")
