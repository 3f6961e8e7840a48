"""Starts every stage process of a plan, brings back those that die, and stops them all.

Starting is a transaction: either every stage is ready within the deadline, or everything that was
started is gone again when the error is raised. From then on a replica that dies fails alone, and
its restart policy says whether and when it comes back: as a new process, with new streams to
everybody.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from stagemesh.errors import ClosedError, StartupError
from stagemesh.plan.values import Plan
from stagemesh.runtime.crew import Crew, told
from stagemesh.runtime.endings import end, kill
from stagemesh.runtime.health import ReplicaState, StageHealth
from stagemesh.runtime.monitor import Monitor, Routes
from stagemesh.runtime.process import Launcher, Process
from stagemesh.runtime.replica import Member, ReplicaId
from stagemesh.spec.registry import ENGINES

_CANCEL_S: Final = 10.0
"""How long a replica that leaves may take to let go of what was cancelled."""
_log: Final = logging.getLogger(__name__)


class Frontends(Routes, Protocol):
    """Whoever gives requests to replicas, and holds the streams to them."""

    def up(self, where: ReplicaId, caller: socket.socket, incarnation: int) -> None:
        """A replica may be used."""
        ...

    def down(self, where: ReplicaId, reason: str) -> None:
        """A replica is gone."""
        ...

    def idle(self, where: ReplicaId) -> asyncio.Future[None]:
        """Done once no request goes through a replica."""
        ...

    def expel(self, where: ReplicaId) -> None:
        """Cancel what goes through a replica."""
        ...

    def leave(self, where: ReplicaId) -> None:
        """Close the stream to a replica of which nothing more is wanted."""
        ...


class Supervisor:
    """The owner of all stage processes of one plan. All methods belong to one loop."""

    def __init__(self, plan: Plan, launcher: Launcher) -> None:
        """Start nothing yet."""
        self._launcher = launcher
        self._crew = Crew(plan, launcher, self._exited)
        self._deadline_s = 0.0
        self._frontends: Frontends | None = None
        self._monitor: Monitor | None = None
        self._stopping = False

    @property
    def pids(self) -> dict[ReplicaId, int]:
        """The processes that run."""
        return {
            member.where: process.pid
            for member in self._crew
            if (process := member.running) is not None and process.pid is not None
        }

    @property
    def health(self) -> tuple[StageHealth, ...]:
        """How every replica is."""
        return tuple(
            StageHealth(
                stage=stage.name,
                replicas=tuple(member.health for member in self._crew.of_stage(stage.stage_id)),
            )
            for stage in self._crew.plan.stages
        )

    @property
    def loop_lag_s(self) -> float:
        """How late the loop does what is due."""
        return 0.0 if self._monitor is None else self._monitor.lag_s

    async def start(self, deadline_s: float) -> Mapping[ReplicaId, socket.socket]:
        """Start all stages; return the caller's stream to each.

        Raises `StartupError`, with everything stopped, when a stage fails or `deadline_s` passes.
        A replica that is started again has as long.
        """
        self._deadline_s = deadline_s
        try:
            await self._prepare()
            members = self._crew.enlist()
            callers = await self._crew.bring_up(members, deadline_s)
        except BaseException:
            await self._launcher.close()
            raise
        for member in members:
            self._crew.serves(member)
        return callers

    def watch(self, frontends: Frontends) -> None:
        """Tell `frontends` of every change; to be called as soon as `start` returns."""
        self._frontends = frontends
        silence_s = self._crew.plan.launch.omni_heartbeat_timeout
        self._monitor = Monitor(self._crew, frontends, silence_s)

    async def scale(self, plan: Plan, drain_s: float) -> None:
        """Run another plan, which differs in its replicas alone.

        One call at a time. New ones are used as soon as all of them are ready, and those that had
        died for good are started again; those that leave have `drain_s` for what they do. Raises
        `StartupError`, with all as it was, when one cannot be brought up.
        """
        if self._stopping:
            raise ClosedError("the system is closed")
        before = self._crew.plan
        self._crew.follow(plan)
        joining = self._crew.enlist()
        try:
            callers = await self._crew.bring_up(joining, self._deadline_s)
        except BaseException:
            self._crew.follow(before)
            await self._crew.dismiss(joining)
            raise
        for member in joining:
            self._crew.serves(member)
            self._told.up(member.where, callers[member.where], member.incarnation)
        wanted = {
            ReplicaId(stage=stage.stage_id, replica=replica.index)
            for stage in plan.stages
            for replica in stage.replicas
        }
        leaving = [
            self._crew.unit(member)
            for member in self._crew
            if member.where not in wanted and not member.is_guest
        ]
        await asyncio.gather(*(self._leave(unit, drain_s) for unit in leaving))
        for member in self._crew:
            if member.state is ReplicaState.STOPPED and not member.is_guest:
                self._come_back(member, 0.0)

    async def stop(self) -> None:
        """Stop all stages, the first one first; when this returns or is cancelled none is left."""
        self._stopping = True
        if self._monitor is not None:
            self._monitor.close()
        works = [member.work for member in self._crew if member.work is not None]
        for work in works:
            work.cancel()
        try:
            await asyncio.gather(*works, return_exceptions=True)
        finally:
            try:
                await end(self._processes())
            finally:
                await self._launcher.close()

    def kill(self) -> None:
        """End every stage process at once; may be called from any thread."""
        self._stopping = True
        kill(self._processes())

    def lost(self, where: ReplicaId, reason: str | None) -> None:
        """A stream to that replica has ended: whatever is left of it goes as well."""
        member = self._crew.members.get(where)
        if member is not None and member.process is not None:
            member.process.lost(reason)

    async def _prepare(self) -> None:
        _check_ranks(self._crew.plan)
        await self._launcher.open()
        if self._stopping:
            raise ClosedError("the system was closed")

    @property
    def _told(self) -> Frontends:
        assert self._frontends is not None, "the system has been started"
        return self._frontends

    def _processes(self) -> Collection[Process]:
        """All processes there have been, those of the first stage first."""
        places = sorted(self._crew.members, key=lambda where: (where.stage, where.replica))
        found = (self._crew.members[where].process for where in places)
        return [process for process in found if process is not None]

    def _exited(self, member: Member, _reason: str) -> None:
        """A process has been reaped; what had not joined yet is the affair of who started it."""
        serving = (ReplicaState.SERVING, ReplicaState.UNHEALTHY, ReplicaState.DRAINING)
        if self._stopping or member.process is None or member.state not in serving:
            return
        member.reason = told(member.process)
        if member.has_left:
            return
        self._told.down(member.where, member.reason)
        if member.state is not ReplicaState.DRAINING and not member.is_guest:
            self._recover(member)  # with its guests, of whose end has been told before

    def _recover(self, member: Member) -> None:
        """A process has died, or did not come up: it comes back with all in it, or it does not."""
        now = asyncio.get_running_loop().time()
        unit = self._crew.unit(member)
        again, *_ = [self._crew.ended(each, now) for each in unit]
        if again is not None:
            self._come_back(member, again.delay_s)
            return
        for each in unit:
            each.state = ReplicaState.STOPPED
            _log.error("%s stays down: its restart policy allows no more", each.who)

    def _come_back(self, member: Member, delay_s: float) -> None:
        for each in self._crew.unit(member):
            each.state = ReplicaState.RESTARTING
        member.work = asyncio.get_running_loop().create_task(self._restart(member, delay_s))

    async def _restart(self, member: Member, delay_s: float) -> None:
        """Start a process again after `delay_s`; if that fails the policy is asked again."""
        await asyncio.sleep(delay_s)
        if self._stopping:
            return
        unit = self._crew.unit(member)
        for each in unit:
            each.state = ReplicaState.STARTING
            each.num_restarts += 1
        try:
            callers = await self._crew.bring_up(unit, self._deadline_s)
        except StartupError as error:
            for each in unit:
                each.reason = str(error)
            _log.warning("%s", error)
            self._recover(member)
            return
        member.work = None
        for each in unit:
            self._crew.serves(each)
            _log.warning("%s is back", each.who)
            self._told.up(each.where, callers[each.where], each.incarnation)

    async def _leave(self, unit: Collection[Member], drain_s: float) -> None:
        """Take no more requests, finish those that run, and end; all of one process together."""
        works = [member.work for member in unit if member.work is not None]
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        for member in unit:
            member.work = None
            self._crew.drains(member)
            self._told.hold(member.where)
        idle = [self._told.idle(member.where) for member in unit]
        _, busy = await asyncio.wait(idle, timeout=drain_s)
        if busy:
            for member in unit:
                self._told.expel(member.where)
            await asyncio.wait(busy, timeout=_CANCEL_S)
        for member in unit:
            member.has_left = True
            self._told.leave(member.where)
        await end([member.process for member in unit if member.process is not None])
        await self._crew.dismiss(unit)


def _check_ranks(plan: Plan) -> None:
    """Refuse ranks that would not know what to do; planning does, a hand-made plan may not."""
    for stage in plan.stages:
        if stage.world_size == 1:
            continue
        (engine,) = ENGINES.load(stage.engine)
        axes = {axis.axis for axis in stage.axes if axis.groups and axis.size > 1}
        if not engine.owns_ranks and not (axes and axes <= engine.executes):
            raise StartupError(
                f"stage `{stage.name}` needs `{stage.world_size}` ranks, which engine"
                f" `{stage.engine}` cannot use",
                stage=stage.name,
            )
