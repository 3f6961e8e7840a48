"""The replicas of a system, how their processes come up, and how they get to know one another.

A process is told what it is, gets a stream to the caller and one to every neighbour that has got
that far, and loads. Every stream is answered for, so a replica is up when it is ready *and* all its
neighbours know it: no request meets a stage that has not heard of the next one.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from stagemesh.errors import StartupError
from stagemesh.plan.save import to_json
from stagemesh.plan.values import Plan
from stagemesh.runtime.endings import bury
from stagemesh.runtime.messages import PROTOCOL, Blame, PeerUp, Setup, Welcome
from stagemesh.runtime.process import Incarnation, StageProcess
from stagemesh.runtime.replica import Member, ReplicaId, Restarts

OnExit = Callable[[Member, str], None]
"""Hears of every process that has ended, with the reason."""


class Crew:
    """All replicas. All methods belong to one loop."""

    def __init__(self, plan: Plan, on_exit: OnExit) -> None:
        """There is nobody yet."""
        self.members: Final[dict[ReplicaId, Member]] = {}
        self._on_exit = on_exit
        self.follow(plan)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self.members.values()))

    def follow(self, plan: Plan) -> None:
        """Take this plan for processes that are started from now on."""
        self.plan = plan
        self._saved = to_json(plan)

    def of_stage(self, stage: int) -> list[Member]:
        """The replicas of a stage, by number."""
        found = [member for member in self if member.where.stage == stage]
        return sorted(found, key=lambda member: member.where.replica)

    def enlist(self) -> list[Member]:
        """Take in the replicas of the plan that are not here yet; nothing is started."""
        joining = []
        for stage in self.plan.stages:
            for replica in stage.replicas:
                where = ReplicaId(stage=stage.stage_id, replica=replica.index)
                if where not in self.members:
                    restarts = Restarts(stage.setup.recovery)
                    member = Member(where=where, stage=stage, restarts=restarts)
                    self.members[where] = member
                    joining.append(member)
        return joining

    async def dismiss(self, members: Collection[Member]) -> None:
        """Forget replicas; what is left of their processes is killed."""
        await bury([member.process for member in members if member.process is not None])
        for member in members:
            del self.members[member.where]

    async def bring_up(
        self, members: Sequence[Member], deadline_s: float
    ) -> Mapping[ReplicaId, socket.socket]:
        """Start a process for each; return the caller's stream to it once they may be used.

        Raises `StartupError` when one fails or `deadline_s` passes; no process is left then.
        """
        callers: dict[ReplicaId, socket.socket] = {}
        try:
            for member in members:
                self._spawn(member)
            meets = [met for member in members for met in self._introduce(member, callers)]
            await self._all_ready(members, meets, deadline_s)
        except BaseException:
            for caller in callers.values():
                caller.close()
            await bury([member.process for member in members if member.process is not None])
            raise
        return callers

    def _spawn(self, member: Member) -> None:
        member.is_introduced = False
        member.process = StageProcess(
            member.who,
            member.stage.env,
            functools.partial(self._on_exit, member),
            functools.partial(self._blamed, member),
        )
        stage, replica = member.where.stage, member.where.replica
        setup = Setup(protocol=PROTOCOL, plan=self._saved, stage=stage, replica=replica)
        member.process.control.send(setup)

    def _introduce(
        self, member: Member, callers: dict[ReplicaId, socket.socket]
    ) -> Iterator[asyncio.Future[None]]:
        """Give a process its streams; the futures are done when both ends know of them."""
        process = member.process
        assert process is not None, "it has been started"
        try:
            callers[member.where], theirs = socket.socketpair()
            yield process.meet(PeerUp(stage=None, replica=0), theirs)
            for other in self._neighbours(member):
                yield from _connect(member, other)
        except OSError as error:
            told = f"{process.name} could not be given its streams: {error}"
            raise StartupError(told, stage=member.stage.name) from error
        member.is_introduced = True
        process.control.send(Welcome())

    def _neighbours(self, member: Member) -> list[Member]:
        """Replicas at the other end of its edges that have streams of their own already."""
        here = member.where.stage
        stages = {
            edge.target if edge.source == here else edge.source
            for edge in self.plan.edges
            if here in (edge.source, edge.target)
        }
        return [
            other
            for other in self
            if other.where.stage in stages and other.is_introduced and other.running is not None
        ]

    async def _all_ready(
        self, members: Sequence[Member], meets: Sequence[asyncio.Future[None]], deadline_s: float
    ) -> None:
        processes = {member.who: member.process for member in members if member.process}
        waits: set[asyncio.Future[float] | asyncio.Future[str]] = set()
        for each in processes.values():
            waits |= {each.ready, each.exited}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + deadline_s
        missing = dict(processes)
        while missing:
            done, waits = await asyncio.wait(
                waits, timeout=deadline - loop.time(), return_when=asyncio.FIRST_COMPLETED
            )
            _check_alive(processes)
            missing = {who: each for who, each in missing.items() if not each.ready.done()}
            if missing and not done:
                names = ", ".join(process.name for process in missing.values())
                first = next(iter(missing)).stage
                raise StartupError(f"not ready after {deadline_s:g} s: {names}", stage=first)
        # needs no deadline: who ends, or is ended for not answering, has met everybody
        await asyncio.gather(*meets)
        _check_alive(processes)

    def _blamed(self, accuser: Member, blame: Blame) -> None:
        """A peer has said what it must not say: it is ended, in place of who had to hear it."""
        if blame.stage is None:
            accused, what = accuser, f"it did not understand the caller: {blame.reason}"
        else:
            place = ReplicaId(stage=blame.stage, replica=blame.replica)
            accused = self.members.get(place, accuser)
            what = f"{accuser.who} did not understand it: {blame.reason}"
        process = accused.running
        if process is not None and blame.incarnation == accused.num_restarts:
            process.lost(what)


def _check_alive(processes: Mapping[Incarnation, StageProcess]) -> None:
    for who, process in processes.items():
        if process.exited.done():
            raise StartupError(told(process), stage=who.stage)


def told(process: StageProcess) -> str:
    """Say why a process has ended."""
    words = process.last_words()
    return f"{process.name} {process.exited.result()}" + (f"\n{words}" if words else "")


def _connect(one: Member, other: Member) -> Iterator[asyncio.Future[None]]:
    """Give two processes the ends of one stream."""
    first, second = socket.socketpair()
    for member, peer, end in ((one, other, first), (other, one, second)):
        process = member.process
        assert process is not None, "both have been started"
        place = peer.where
        up = PeerUp(stage=place.stage, replica=place.replica, incarnation=peer.num_restarts)
        yield process.meet(up, end)
