"""Processes of this host, started by this one; a stream between two is a pair of sockets."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Mapping, Sequence

from stagemesh.plan.values import Plan
from stagemesh.runtime.child import Child
from stagemesh.runtime.dialogue import Dialogue
from stagemesh.runtime.launchers.lodger import Lodger
from stagemesh.runtime.launchers.quarters import Quarters, here
from stagemesh.runtime.launchers.ranked import RankedChildren, start_replica
from stagemesh.runtime.messages import PROTOCOL, Message, PeerUp, Ping, Setup
from stagemesh.runtime.process import Launcher, Party, Process, Start
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.surroundings import Surroundings

CALLER_UP = PeerUp(stage=None, replica=0)
"""How a process is told of the caller."""


class StageProcess:
    """A process of this host, or a stage that runs in one."""

    def __init__(self, start: Start, around: Sequence[Surroundings]) -> None:
        """Start it, with a rank in each of `around`.

        Raises `StartupError` when there is no process, or no descriptor, left.
        """
        self.name = str(start.who)
        self.on_exit = start.on_exit
        self.dialogue = Dialogue(start.on_blame)
        self.ready = self.dialogue.ready
        self.pulse = self.dialogue.pulse
        self.exited: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.guests: list[StageProcess] = []
        self.child = self._started(start, around)
        self.control = self.child.control
        self._told = False

    def _started(
        self, start: Start, around: Sequence[Surroundings]
    ) -> Child | RankedChildren | Lodger:
        """Start it, or have it run in the process of another stage."""
        heard, host, who = self.dialogue.hear, start.host, start.who
        if host is not None:
            assert isinstance(host, StageProcess), "it was started here"
            assert isinstance(host.child, Child), "a guest has no guests"
            host.guests.append(self)
            return Lodger(host.child, heard, self.lost)
        if start.num_guests:
            return Child(who, around[0], heard, self.lost, self._reaped, start.num_guests)
        return start_replica(who, around, heard, self.lost, self._reaped)

    @property
    def pid(self) -> int:
        """The process, which leads a group of its own."""
        return self.child.pid

    @property
    def alive(self) -> bool:
        """Whether it has not been reaped."""
        return not self.exited.done()

    @property
    def values(self) -> Mapping[str, object]:
        """What was decided for its stage, once it is ready."""
        return self.dialogue.values

    def say(self, message: Message) -> None:
        """Send a message without descriptors."""
        self.child.say(message)

    def meet(self, up: PeerUp, end: socket.socket) -> asyncio.Future[None]:
        """Hand it its end of a stream; done once it knows the peer, or has ended itself."""
        met = self.dialogue.meets(up)
        self.child.say(up, (end.detach(),))
        return met

    def ping(self) -> None:
        """Ask how it is; unanswered questions are not repeated."""
        if self.pulse.asked():
            self.child.say(Ping(number=self.pulse.number))
        else:
            self.pulse.who = self.child.silent

    def kill(self, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the whole group, unless the process has been reaped."""
        self.child.kill(with_signal)

    def lost(self, reason: str | None) -> None:
        """End it because a stream to it has ended; `reason` says what it did wrong, if anything."""
        if reason is None:
            self.child.abandon()
            return
        if self.dialogue.fatal is None:
            self.dialogue.fatal = reason
        self.kill()

    def last_words(self) -> str:
        """The last lines that it wrote, where they are all that is known of its end."""
        return "" if self._told else self.child.last_lines()

    def over(self, how: str, cause: StageProcess | None) -> None:
        """Its process has ended like that, because of what `cause` has said, if anybody has."""
        fatal = self.dialogue.fatal
        reason = how if fatal is None else f"failed: {fatal}"
        if fatal is None and cause is not None:
            reason = f"ended with {cause.name}, which failed: {cause.dialogue.fatal}"
        self._told = cause is not None
        self.exited.set_result(reason)
        self.dialogue.over()

    def _reaped(self, how: str) -> None:
        """Nothing is left of the process, nor of the stages that ran in it."""
        everybody = [*self.guests, self]
        for guest in self.guests:
            guest.control.read_rest()
            guest.control.close()
        cause = next((each for each in everybody if each.dialogue.fatal is not None), None)
        for each in everybody:
            each.over(how, cause)
        for each in everybody:
            each.on_exit(each.exited.result())


class LocalLauncher(Launcher):
    """Starts on this host what the start of a plan runs here."""

    def __init__(self, plan: Plan) -> None:
        """Start nothing yet."""
        self._quarters = Quarters(plan, here(plan))

    async def open(self) -> None:
        """Prepare what stages are to find here; raises `DiagnosticError` for what there is not."""
        await self._quarters.open()

    def start(self, start: Start) -> StageProcess:
        """Start a process and say what it is to be."""
        where = ReplicaId(stage=start.stage.stage_id, replica=start.who.replica)
        quarters = self._quarters
        process = StageProcess(start, quarters.around(start.stage, where.replica))
        process.ready.add_done_callback(
            lambda _ready: quarters.ready(where, process.name, process.pid)
        )
        plan = quarters.seen(where, start.saved_plan)
        process.say(Setup(protocol=PROTOCOL, plan=plan, stage=where.stage, replica=where.replica))
        return process

    def call(self, process: Process) -> tuple[asyncio.Future[socket.socket], asyncio.Future[None]]:
        """Make the caller's stream to a process."""
        assert isinstance(process, StageProcess), "it was started here"
        ours: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        end, theirs = socket.socketpair()
        ours.set_result(end)
        return ours, process.meet(CALLER_UP, theirs)

    def connect(self, one: Party, other: Party) -> Sequence[asyncio.Future[None]]:
        """Make a stream between two."""
        first, second = one.process, other.process
        assert isinstance(first, StageProcess), "it was started here"
        assert isinstance(second, StageProcess), "it was started here"
        end, theirs = socket.socketpair()
        return first.meet(other.up, end), second.meet(one.up, theirs)

    async def close(self) -> None:
        """End what was prepared."""
        await self._quarters.close()
