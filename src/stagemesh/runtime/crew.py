"""The replicas of a system, how their processes come up, and how they get to know one another.

A process is told what it is, gets a stream to the caller and one to every neighbour that has got
that far, and loads. Every stream is answered for, so a replica is up when it is ready *and* all its
neighbours know it: no request meets a stage that has not heard of the next one.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from stagemesh.errors import StartupError
from stagemesh.plan.save import to_json
from stagemesh.plan.values import Plan
from stagemesh.runtime.core.membership import Membership, Restart
from stagemesh.runtime.endings import bury
from stagemesh.runtime.health import ReplicaState
from stagemesh.runtime.messages import Blame, PeerUp, Welcome
from stagemesh.runtime.process import Incarnation, Launcher, Party, Process, Start
from stagemesh.runtime.replica import Member, ReplicaId, policy_of

OnExit = Callable[[Member, str], None]
"""Hears of every process that has ended, with the reason."""


class Crew:
    """All replicas. All methods belong to one loop."""

    def __init__(self, plan: Plan, launcher: Launcher, on_exit: OnExit) -> None:
        """There is nobody yet; `launcher` starts whoever comes."""
        self._launcher = launcher
        self.members: Final[dict[ReplicaId, Member]] = {}
        self._memberships: dict[int, Membership] = {}
        self._num_started: Counter[ReplicaId] = Counter()
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

    def unit(self, member: Member) -> list[Member]:
        """Whoever shares its process, itself included; the host, which decides for all, first."""
        found = [other for other in self if other.place == member.place]
        return sorted(found, key=lambda other: other.is_guest)

    def enlist(self) -> list[Member]:
        """Take in the replicas of the plan that are not here yet; nothing is started."""
        joining = []
        for stage in self.plan.stages:
            policy = policy_of(stage.setup.recovery)
            self._memberships.setdefault(stage.stage_id, Membership(policy))
            for replica in stage.replicas:
                where = ReplicaId(stage=stage.stage_id, replica=replica.index)
                if where not in self.members:
                    member = Member(where=where, stage=stage)
                    self.members[where] = member
                    joining.append(member)
        return joining

    def serves(self, member: Member) -> None:
        """It may be used."""
        member.state = ReplicaState.SERVING
        member.reason = None
        self._memberships[member.where.stage].ready(member.where.replica, member.incarnation)

    def drains(self, member: Member) -> None:
        """It is to finish what it has; its end is no failure from now on."""
        member.state = ReplicaState.DRAINING
        self._memberships[member.where.stage].drain(member.where.replica)

    def ended(self, member: Member, now: float) -> Restart | None:
        """Its process is gone, or did not come up; say whether and when it is started again."""
        where = member.where
        changes = self._memberships[where.stage].ended(where.replica, member.incarnation, now)
        return next((change for change in changes if isinstance(change, Restart)), None)

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
        callers: dict[ReplicaId, asyncio.Future[socket.socket]] = {}
        members = sorted(members, key=lambda member: member.is_guest)
        try:
            for member in members:
                self._spawn(member)
            meets = [met for member in members for met in self._introduce(member, callers)]
            await self._all_ready(members, meets, deadline_s)
        except BaseException:
            for caller in callers.values():
                if not caller.cancel():
                    caller.result().close()
            await bury([member.process for member in members if member.process is not None])
            raise
        return {where: caller.result() for where, caller in callers.items()}

    def _spawn(self, member: Member) -> None:
        where, unit = member.where, self.unit(member)
        member.is_introduced = False
        self._num_started[where] += 1
        member.incarnation = self._num_started[where]
        self._memberships[where.stage].expected(where.replica, member.incarnation)
        member.process = self._launcher.start(
            Start(
                who=member.who,
                stage=member.stage,
                saved_plan=self._saved,
                host=unit[0].process if member.is_guest else None,
                num_guests=0 if member.is_guest else len(unit) - 1,
                on_exit=functools.partial(self._on_exit, member),
                on_blame=functools.partial(self._blamed, member),
            )
        )

    def _introduce(
        self, member: Member, callers: dict[ReplicaId, asyncio.Future[socket.socket]]
    ) -> Iterator[asyncio.Future[None]]:
        """Give a process its streams; the futures are done when both ends know of them."""
        process = member.process
        assert process is not None, "it has been started"
        try:
            callers[member.where], met = self._launcher.call(process)
            yield met
            for other in self._neighbours(member):
                yield from self._launcher.connect(_party(member), _party(other))
        except OSError as error:
            told = f"{process.name} could not be given its streams: {error}"
            raise StartupError(told, stage=member.stage.name) from error
        member.is_introduced = True
        process.say(Welcome())

    def _neighbours(self, member: Member) -> list[Member]:
        """Replicas at the other end of its edges that have streams of their own already.

        Of stages that share processes, only those in one process work for the same requests.
        """
        here = member.where.stage
        stages = {
            edge.target if edge.source == here else edge.source
            for edge in self.plan.edges
            if here in (edge.source, edge.target)
        }
        return [
            other
            for other in self
            if other.where.stage in stages
            and other.is_introduced
            and other.running is not None
            and (other.place.stage != member.place.stage or other.place == member.place)
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
        if process is not None and (accused is accuser or blame.incarnation == accused.incarnation):
            process.lost(what)


def _check_alive(processes: Mapping[Incarnation, Process]) -> None:
    for who, process in processes.items():
        if process.exited.done():
            raise StartupError(told(process), stage=who.stage)


def told(process: Process) -> str:
    """Say why a process has ended."""
    words = process.last_words()
    return f"{process.name} {process.exited.result()}" + (f"\n{words}" if words else "")


def _party(member: Member) -> Party:
    """A replica as others are told of it."""
    process, where = member.process, member.where
    assert process is not None, "it has been started"
    up = PeerUp(stage=where.stage, replica=where.replica, incarnation=member.incarnation)
    return Party(process=process, up=up)
