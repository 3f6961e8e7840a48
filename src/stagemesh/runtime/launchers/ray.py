"""The launcher that has Ray start the processes of stages on other nodes.

Ray finds room for every replica (a placement group with a bundle for each) and runs one actor in
it, which keeps its process as a headless start does: it comes to the head's door with the head's
token, and data takes streams of its own. So a process that ends is known by its stream, and Ray is
asked only why. Where Ray starts the ranks themselves each has a bundle and an actor, and those of
further ranks come to the door of the one that keeps rank 0. Actors live as long as their processes;
a replica that comes back gets new ones in the same bundles. Room is kept until the system is
closed, also that of replicas that have left. Stages that Ray does not start are started here.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from stagemesh.errors import StagemeshError
from stagemesh.plan.launch import is_by_ray, is_spread
from stagemesh.plan.values import Plan
from stagemesh.runtime.launchers.far_rank import RankLinks
from stagemesh.runtime.launchers.head import Entrance, HeadLauncher
from stagemesh.runtime.launchers.ray_bundles import Request, Share, request_for
from stagemesh.runtime.launchers.ray_cluster import RayActor, RayCluster, RayRoom, cause
from stagemesh.runtime.launchers.ray_environment import ray_environment
from stagemesh.runtime.launchers.ray_jobs import Job, RankJob, encode
from stagemesh.runtime.process import Launcher, Party, Process, Start
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.transport.handshake import Hello
from stagemesh.runtime.transport.token import Secret, read_secret
from stagemesh.spec.frozen import frozen

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
ASK_S: Final = 2.0
"""How long Ray may take to confirm a death whose cause is not known."""
END_S: Final = 5.0
"""How long an actor may take to end what it runs, before it is ended itself."""
_LINK_BITS: Final = 62


class RayLauncher(Launcher):
    """Starts the stages that are Ray's to start. All methods belong to one loop."""

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
        self._head = HeadLauncher(self._plan, entrance, self._is_here)
        self._master = (address, self._head.port)

    def start(self, start: Start) -> Process:
        """Make a seat for a process; Ray starts all that were asked for in one turn together."""
        if self._is_here(start):
            return self._door.start(start)
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
            if not begun.actors:
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

    def _is_here(self, start: Start) -> bool:
        return not is_by_ray(self._plan.launch, start.stage)

    def _place(self) -> None:
        """Ask for room for all that have none, and start everything that was asked for."""
        begun, self._starts = self._starts, []
        new = [
            (each.where, each.start.stage.replicas[each.where.replica])
            for each in begun
            if each.where not in self._spots or self._spots[each.where].has_failed
        ]
        if new:
            spread = [each.where for each in begun if is_spread(each.start.stage)]
            request = request_for(new, self._plan.devices.kind, spread)
            room = _threaded(self._cluster.reserve, request)
            self._rooms.append(room)
            self._spots |= {where: _Spot(request=request, room=room) for where, _ in new}
        for each in begun:
            work = asyncio.get_running_loop().create_task(self._run(each))
            self._works[work] = each
            work.add_done_callback(self._works.pop)

    async def _run(self, begun: _Begun) -> None:
        """Have one replica run, from its actors' start to their end."""
        spot = self._spots[begun.where]
        try:
            room = await asyncio.shield(spot.room)
            if begun.seat.alive:
                await self._employ(begun, room, spot.request.shares[begun.where])
                await begun.attend()
        except StagemeshError as error:
            begun.seat.dead(f"could not be started: {error}")
        finally:
            ends = [_threaded(self._cluster.end, actor) for actor in begun.actors]
            if ends:
                await asyncio.wait(ends, timeout=END_S)

    async def _employ(self, begun: _Begun, room: RayRoom, shares: Sequence[Share]) -> None:
        """Start its actors: those of further ranks when that of rank 0 has said where it is."""
        launch = self._cluster.launch
        begun.has(await _threaded(launch, room, shares[0], encode(self._job(begun))))
        if len(shares) == 1 or (hello := await begun.comes()) is None:
            return
        jobs = [encode(job) for job in self._rank_jobs(begun, hello)]
        launches = [
            _threaded(launch, room, share, job) for share, job in zip(shares[1:], jobs, strict=True)
        ]
        await asyncio.wait(launches)
        for started in launches:
            begun.has(started.result())

    def _job(self, begun: _Begun) -> Job:
        return Job(
            plan=begun.start.saved_plan,
            stage=begun.where.stage,
            replica=begun.where.replica,
            master=self._master,
            token=self._secret.token,
            environment=self._environment(begun),
            ranks=begun.links,
        )

    def _rank_jobs(self, begun: _Begun, hello: Hello) -> Iterator[RankJob]:
        for rank, links in enumerate(begun.links, start=1):
            yield RankJob(
                plan=begun.start.saved_plan,
                stage=begun.where.stage,
                replica=begun.where.replica,
                master=(hello.address, hello.port),
                token=self._secret.token,
                environment=self._environment(begun),
                rank=rank,
                links=links,
            )

    def _environment(self, begun: _Begun) -> dict[str, str]:
        return ray_environment(os.environ, begun.start.stage.env)


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
    """One replica that Ray is to run, and its seat at the head."""

    def __init__(self, start: Start, head: HeadLauncher) -> None:
        self.start: Final = start
        self.where: Final = ReplicaId(stage=start.stage.stage_id, replica=start.who.replica)
        self.links: Final = tuple(_links(start))
        self.actors: Final[list[RayActor]] = []
        self._dones: Final[list[asyncio.Future[str | None]]] = []
        self.seat: Final = head.seat(start, self._inquest)

    def has(self, actor: RayActor) -> None:
        """It has an actor, for the next one of its ranks."""
        done = asyncio.wrap_future(actor.done)
        done.add_done_callback(_heard)
        if self.actors:
            done.add_done_callback(partial(self._without, len(self.actors)))
        self.actors.append(actor)
        self._dones.append(done)

    async def comes(self) -> Hello | None:
        """Wait until rank 0 has come; `None` when it never does."""
        waits: set[asyncio.Future[Any]] = {self.seat.seated, self.seat.exited, self._dones[0]}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return self.seat.seated.result() if self.seat.has_come and self.seat.alive else None

    async def attend(self) -> None:
        """Wait until the process has ended, and its actors if they end in time."""
        done = self._dones[0]
        waits: set[asyncio.Future[str | None] | asyncio.Future[str]] = {done, self.seat.exited}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if self.seat.has_come:
            await asyncio.wait(self._dones, timeout=END_S)
        if done.done() and (fate := _fate(done)) is not None and self.seat.is_free:
            self.seat.dead(fate)

    def _without(self, rank: int, done: asyncio.Future[str | None]) -> None:
        """The actor of a further rank has ended: unless rank 0 has heard why, it is told here."""
        if (fate := _fate(done)) is not None and self.seat.alive:
            self.seat.dead(f"rank `{rank}` {fate}")

    async def _inquest(self, told: str | None) -> str | None:
        """Have Ray confirm which actor has died, if one has."""
        if not self._dones or (told is not None and not self.links):
            return told
        lead, *others = self._dones
        await asyncio.wait([lead] if told is None else self._dones, timeout=ASK_S)
        if told is None and not lead.done():
            return f"its host is gone, and Ray has not said why within {ASK_S:g} s"
        if told is None:
            return _fate(lead)
        for rank, done in enumerate(others, start=1):
            if done.done() and (fate := _fate(done)) is not None:
                return f"rank `{rank}` {fate}"
        return told


def _links(start: Start) -> Iterator[RankLinks]:
    """The streams of further ranks to rank 0, where these have actors of their own."""
    if is_spread(start.stage):
        for _ in range(1, start.stage.world_size):
            control, feed = secrets.randbits(_LINK_BITS), secrets.randbits(_LINK_BITS)
            yield RankLinks(control=control, feed=feed)


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
