"""The launcher that has Ray start the processes of stages on other nodes.

Ray finds room for every replica (a placement group with a bundle for each) and runs one actor in
it per process, which keeps the process as a headless start does: it comes to the head's door with
the head's token, and data takes streams of its own. So a process that ends is known by its stream,
and Ray is asked only why. An actor lives as long as its process; one that comes back gets a new
actor in the same bundle. Room is kept until the system is closed, also that of replicas that have
left.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, ParamSpec, TypeVar

import msgspec

from stagemesh.config.launch import NO_STAGE
from stagemesh.errors import StagemeshError
from stagemesh.plan.values import Plan
from stagemesh.runtime.launchers.head import Entrance, HeadLauncher
from stagemesh.runtime.launchers.ray_actor import Job
from stagemesh.runtime.launchers.ray_bundles import Request, request_for
from stagemesh.runtime.launchers.ray_cluster import RayActor, RayCluster, RayRoom, cause
from stagemesh.runtime.launchers.ray_environment import ray_environment
from stagemesh.runtime.process import Launcher, Party, Process, Start
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.transport.token import Secret, read_secret
from stagemesh.spec.frozen import frozen

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
ASK_S: Final = 2.0
"""How long Ray may take to confirm a death whose cause is not known."""
END_S: Final = 5.0
"""How long an actor may take to end what it runs, before it is ended itself."""
_log: Final = logging.getLogger(__name__)


class RayLauncher(Launcher):
    """Starts every stage through Ray. All methods belong to one loop."""

    def __init__(self, plan: Plan, ray: Any) -> None:  # noqa: ANN401  a module without types
        """`ray` is the module. Raises `DiagnosticError` when the token cannot be read."""
        secret = read_secret(plan.launch)
        # Nobody has to agree on one beforehand: the actors are handed it.
        own = Secret(token=secrets.token_bytes(32))
        self._secret = secret if secret.is_known else own
        self._plan = plan
        self._cluster = RayCluster(ray)
        self._joining: asyncio.Future[str] | None = None
        self._head: HeadLauncher | None = None
        self._master = ("", 0)
        self._starts: list[_Begun] = []
        self._spots: dict[ReplicaId, _Spot] = {}
        self._rooms: list[asyncio.Future[RayRoom]] = []
        self._works: dict[asyncio.Task[None], _Begun] = {}

    async def open(self) -> None:
        """Join the cluster, and listen where its nodes can reach this one."""
        launch = self._plan.launch
        self._joining = _threaded(self._cluster.join, launch.ray_address)
        node = await asyncio.shield(self._joining)
        address = launch.omni_master_address or node
        entrance = Entrance(address=address, port=launch.omni_master_port or 0, secret=self._secret)
        # A head that runs no stage: every one comes from elsewhere.
        plan = replace(self._plan, launch=replace(launch, stage_id=NO_STAGE))
        self._head = HeadLauncher(plan, entrance)
        self._master = (address, self._head.port)

    def start(self, start: Start) -> Process:
        """Make a seat for a process; Ray starts all that were asked for in one turn together."""
        if not self._starts:
            asyncio.get_running_loop().call_soon(self._place)
        begun = _Begun(start, self._door)
        self._starts.append(begun)
        return begun.seat

    def call(self, process: Process) -> tuple[asyncio.Future[socket.socket], asyncio.Future[None]]:
        """Make the caller's stream to a process."""
        return self._door.call(process)

    def connect(self, one: Party, other: Party) -> Sequence[asyncio.Future[None]]:
        """Make a stream between two."""
        return self._door.connect(one, other)

    async def close(self) -> None:
        """Let nobody in any more, end all actors, give back their room, and leave the cluster."""
        head, self._head = self._head, None
        if head is not None:
            await head.close()
        # Those whose processes have ended are about to end as well.
        for work, begun in self._works.items():
            if begun.done is None:
                work.cancel()
        if self._works:
            await asyncio.wait(self._works, timeout=END_S)
        for work in self._works:
            work.cancel()
        await asyncio.gather(*self._works, return_exceptions=True)
        joining, self._joining = self._joining, None
        if joining is not None:
            await asyncio.wait([joining])
            if joining.exception() is None:
                await _threaded(self._cluster.close)
                await asyncio.gather(*self._rooms, return_exceptions=True)
                await _threaded(self._cluster.leave)

    @property
    def _door(self) -> HeadLauncher:
        assert self._head is not None, "it has been opened"
        return self._head

    def _place(self) -> None:
        """Ask for room for all that have none, and start everything that was asked for."""
        begun, self._starts = self._starts, []
        new = [
            (each.where, each.start.stage.replicas[each.where.replica])
            for each in begun
            if each.where not in self._spots or self._spots[each.where].has_failed
        ]
        if new:
            request = request_for(new, self._plan.devices.kind)
            room = _threaded(self._cluster.reserve, request)
            self._rooms.append(room)
            self._spots |= {where: _Spot(request=request, room=room) for where, _ in new}
        for each in begun:
            work = asyncio.get_running_loop().create_task(self._run(each))
            self._works[work] = each
            work.add_done_callback(self._works.pop)

    async def _run(self, begun: _Begun) -> None:
        """Have one process run, from its actor's start to its end."""
        spot = self._spots[begun.where]
        actor: RayActor | None = None
        try:
            room = await asyncio.shield(spot.room)
            if begun.seat.alive:
                share = spot.request.shares[begun.where]
                actor = await _threaded(self._cluster.launch, room, share, self._job(begun))
                await begun.attend(actor)
        except StagemeshError as error:
            begun.seat.dead(f"could not be started: {error}")
        finally:
            if actor is not None:
                await asyncio.wait([_threaded(self._cluster.end, actor)], timeout=END_S)

    def _job(self, begun: _Begun) -> bytes:
        start = begun.start
        job = Job(
            plan=start.saved_plan,
            stage=begun.where.stage,
            replica=begun.where.replica,
            master=self._master,
            token=self._secret.token,
            environment=ray_environment(os.environ, start.stage.env),
        )
        return msgspec.msgpack.encode(job)


@frozen
class _Spot:
    """Where a replica runs, whichever of its processes it is."""

    request: Request
    """What was asked for."""
    room: asyncio.Future[RayRoom]
    """Done once it is there; shared with the others of that request."""

    @property
    def has_failed(self) -> bool:
        return self.room.done() and self.room.exception() is not None


class _Begun:
    """One process that Ray is to run, and its seat at the head."""

    def __init__(self, start: Start, head: HeadLauncher) -> None:
        self.start: Final = start
        self.where: Final = ReplicaId(stage=start.stage.stage_id, replica=start.who.replica)
        self.done: asyncio.Future[str | None] | None = None
        self.seat: Final = head.seat(start, self._inquest)

    async def attend(self, actor: RayActor) -> None:
        """Wait until the process has ended, and its actor if it ends in time."""
        done = self.done = asyncio.wrap_future(actor.done)
        done.add_done_callback(_heard)
        waits: set[asyncio.Future[str | None] | asyncio.Future[str]] = {done, self.seat.exited}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not done.done() and self.seat.has_come:
            await asyncio.wait([done], timeout=END_S)
        if done.done() and (fate := _fate(done)) is not None and self.seat.is_free:
            self.seat.dead(fate)

    async def _inquest(self) -> str | None:
        """Have Ray confirm that the actor has died."""
        if self.done is None:
            return None
        await asyncio.wait([self.done], timeout=ASK_S)
        if not self.done.done():
            return f"its host is gone, and Ray has not said why within {ASK_S:g} s"
        return _fate(self.done)


def _fate(done: asyncio.Future[str | None]) -> str | None:
    error = done.exception()
    return done.result() if error is None else cause(error)


def _threaded(
    function: Callable[Arguments, Result], *args: Arguments.args, **named: Arguments.kwargs
) -> asyncio.Future[Result]:
    """Run on a thread, to the end, whether or not anybody waits for it."""
    future = asyncio.ensure_future(asyncio.to_thread(function, *args, **named))
    future.add_done_callback(_heard)
    return future


def _heard(future: asyncio.Future[Any]) -> None:
    """What it has failed with may interest nobody any more."""
    if not future.cancelled():
        future.exception()
