"""The frontend: admits requests, routes them, follows them, and gathers what final stages say.

It lives on one asyncio loop and waits for nothing but its user. Decisions are made by the pure
machines in `runtime/core`; this is the shell that carries them out on streams.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from stagemesh.errors import (
    ClosedError,
    InvalidRequestError,
    StageFailedError,
    StagemeshError,
)
from stagemesh.plan.values import Plan
from stagemesh.runtime.alarm import Alarm
from stagemesh.runtime.arrivals import Arrivals
from stagemesh.runtime.core.actions import Action, Begin, Ended, Enter, Settled
from stagemesh.runtime.core.actions import Cancel as CancelAt
from stagemesh.runtime.core.dispatcher import Dispatcher
from stagemesh.runtime.desk import desk_of
from stagemesh.runtime.edge import Connector, EdgeIn, Peer
from stagemesh.runtime.edge_out import EdgeOut
from stagemesh.runtime.live import Live, Waits, ask_of, failure_of, traffic_of
from stagemesh.runtime.load import Counts
from stagemesh.runtime.marks import told_here
from stagemesh.runtime.messages import (
    Ack,
    Attached,
    Cancelled,
    Chunk,
    Credit,
    Failed,
    Finished,
    Key,
    Marks,
    Message,
    Progress,
    ProtocolError,
    Terminal,
    Whole,
)
from stagemesh.runtime.outputs import StageState
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.running import Call, FrontendLimits, Running, Seat, Seats
from stagemesh.runtime.session_messages import (
    SessionClosed,
    SessionOpened,
)
from stagemesh.runtime.shapes import room_of, shapes_of
from stagemesh.runtime.stream import Stream
from stagemesh.runtime.submits import check_sendable, give_prompt, tell
from stagemesh.runtime.telemetry import Observers, StageMarks, Traffic, outcome_of

_FIRST: Final = 1
"""Number of the first process of a replica."""
_log: Final = logging.getLogger(__name__)


class Frontend:
    """All requests of one caller."""

    def __init__(
        self,
        plan: Plan,
        callers: Mapping[ReplicaId, socket.socket],
        on_lost: Callable[[ReplicaId, str | None], None],
        *,
        limits: FrontendLimits | None = None,
        observers: Observers | None = None,
    ) -> None:
        """Take over the streams to all replicas; `on_lost` hears of one that ended, and why."""
        limits = FrontendLimits() if limits is None else limits
        self._plan: Final = plan
        self._unread_bytes: Final = limits.unread_bytes
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._dispatcher = Dispatcher(shapes_of(plan), queue_limit=limits.queue_limit)
        self._observers = Observers() if observers is None else observers
        self.counts: Final[dict[ReplicaId, Counts]] = {}
        self._signs: dict[ReplicaId, float] = {}
        self._live: dict[str, Live] = {}
        self._tickets = 0
        self._deadline = Alarm(self._tick)
        self.desk: Final = desk_of(plan, limits.frontend, self, self._dispatcher.choose)
        self._closed = False
        self._draining = False
        self._waits = Waits(self._is_busy)
        self._peers: dict[ReplicaId, Peer] = {}
        for where, sock in callers.items():
            self._attach(where, sock, _FIRST)

    @property
    def draining(self) -> bool:
        """Whether it takes no more requests."""
        return self._draining

    @property
    def traffic(self) -> Traffic:
        """The requests that there are."""
        return traffic_of(self._dispatcher)

    def open(self, call: Call) -> Running:
        """Take a request on, and submit it to one replica of each stage once there is room.

        Raises `InvalidRequestError` for a name in use or what cannot be carried, `OverloadedError`
        when too many run or wait, and `StageFailedError` when a stage has no replica left.
        """
        try:
            return self._open(call)
        except StagemeshError as error:
            self._observers.refused(call.request_id, outcome_of(error, is_closing=True), error)
            raise

    def _open(self, call: Call) -> Running:
        if self._closed or self._draining:
            why = "is closed" if self._closed else "takes no more requests: it is shutting down"
            raise ClosedError(f"the system {why}")
        name = call.request_id
        self.desk.check(call)
        check_sendable(self._plan, call)
        actions = self._dispatcher.open(ask_of(call), self._loop.time())
        self._tickets += 1
        # by ticket: a request and its live record must not hold each other once they are forgotten
        leave = functools.partial(self._leave, name, self._tickets)
        running = Running(call, leave, self._unread_bytes)
        trace = self._observers.opened(name)
        self._live[name] = Live(call=call, running=running, ticket=self._tickets, trace=trace)
        try:
            self._act(actions)
        except BaseException:
            self._leave(name, self._tickets)  # nobody else holds it: its slots would stay taken
            raise
        self._deadline.set(self._dispatcher.next_deadline)
        return running

    def up(self, where: ReplicaId, caller: socket.socket, incarnation: int) -> None:
        """A replica has joined, or come back, and all its neighbours know it: it may be used."""
        if self._closed:
            caller.close()
        else:
            self._attach(where, caller, incarnation)

    def hold(self, where: ReplicaId) -> None:
        """Give a replica nothing more for now; what it has goes on."""
        self.desk.held(where)
        self._act(self._dispatcher.retired(where.stage, where.replica, self._loop.time()))

    def resume(self, where: ReplicaId) -> None:
        """A replica that was held takes requests again."""
        if where in self._peers:
            self._dispatcher.resumed(where.stage, where.replica)
            self.desk.joined(where)

    def down(self, where: ReplicaId, reason: str) -> None:
        """A replica is gone: what it still held fails, and it gets nothing more."""
        self.hold(where)
        peer = self._peers.get(where)
        if peer is not None:
            peer.stream.read_rest()  # what had ended there before is not failed by the death
            del self._peers[where]
            peer.close()
        actions = self._left(where, reason)
        self.desk.died(where, reason)
        seat, now = self._seat(where), self._loop.time()
        self._observers.died(seat, reason, now - self._signs.pop(where, now))
        if not any(isinstance(action, Ended) and action.stage is not None for action in actions):
            told = {"stage": seat.stage, "replica": seat.replica}
            _log.warning("%s", reason, extra=told)  # no request tells of it

    def expel(self, where: ReplicaId) -> None:
        """A replica leaves, and has had its time: what is still bound to it is cancelled."""
        for name in self._bound(where):
            self.end(name, self._error(name, where, "left before the request was done"))

    def leave(self, where: ReplicaId) -> None:
        """Close the stream to a replica of which nothing more is wanted."""
        peer = self._peers.pop(where, None)
        if peer is not None:
            peer.close()
        self._left(where, f"{self._seat(where)} has left")

    def drain(self) -> None:
        """Take no more requests; those that run or wait go on."""
        self._draining = True

    def idle(self, where: ReplicaId | None = None) -> asyncio.Future[None]:
        """Done once no request is bound to a replica, or to any; needs no time where none is."""
        return self._waits.idle(where)

    def close(self) -> None:
        """End every request and close every stream; calling it again does nothing."""
        self._closed = True
        self.desk.close_all()
        for name in self._dispatcher.names:
            self.end(name, ClosedError("the system was closed while the request ran"))
        self._deadline.set(None)
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def _attach(self, where: ReplicaId, sock: socket.socket, incarnation: int) -> None:
        def on_message(message: Message, attached: Attached) -> None:
            if arrivals is None or not isinstance(message, Chunk):
                self._on_message(where, peer, message, attached)
            elif (fault := arrivals.take(message, attached)) is not None:
                name, told = message.key.rid, f"has put out what is refused: {fault}"
                self.end(name, self._error(name, where, told))

        def on_eof(reason: str | None) -> None:
            self._signs.setdefault(where, self._loop.time())
            self.hold(where)
            self._on_lost(where, reason)  # and `down` comes once the process has been reaped

        connector = Connector.to_caller(sock)
        stream = Stream(sock, on_message, on_eof, bulk_limit=connector.bulk_limit)
        peer = Peer(stream=stream, incarnation=incarnation)
        counts = self.counts.setdefault(where, Counts())
        peer.out = EdgeOut(peer.stream, connector.sender(), self._sent, counts.out(where.stage))
        peer.into = EdgeIn(peer.stream, connector, counts.into(where.stage))
        stage, seat, arrivals = self._plan.stage(where.stage), self._seat(where), None
        if stage.final_output_type is not None:
            arrivals = Arrivals(stage, seat, peer.into, self._observers, self._live)
        self._peers[where] = peer
        slots, window = room_of(self._plan.stage(where.stage))
        self._dispatcher.joined(where.stage, where.replica, slots, window)
        self.desk.joined(where)

    def _left(self, where: ReplicaId, reason: str) -> list[Action]:
        stage, now = where.stage, self._loop.time()
        actions = self._dispatcher.left(stage, where.replica, reason, now)
        self._act(actions)
        return actions

    def _bound(self, where: ReplicaId) -> list[str]:
        """Requests that go through a replica, whether they are done there or not."""
        route = self._dispatcher.route
        return [name for name in self._live if route(name).get(where.stage) == where.replica]

    def _is_busy(self, where: ReplicaId | None) -> bool:
        return bool(self._live if where is None else self._bound(where))

    def _seat(self, where: ReplicaId) -> Seat:
        return Seat(stage=self._plan.stage(where.stage).name, replica=where.replica)

    def _begin(self, begin: Begin) -> None:
        """Tell the first stages, and give the prompt to those that take it."""
        live = self._live[begin.name]
        live.key = Key(rid=begin.name, epoch=begin.epoch)
        live.machine = self._dispatcher.machine(begin.name)
        self._observers.begun(begin.name, self._tell(live, begin.route))
        self.desk.begun(live.call)
        try:
            give_prompt(self._plan, live, self._peers)
        except ValueError as refusal:
            self._refused(begin.name, refusal)

    def _tell(self, live: Live, route: Mapping[int, int], turn: int | None = None) -> Seats:
        live.goes_to(route, self._loop.time(), turn)
        seats = live.seats(self._plan, route)
        live.running.begin(seats)
        tell(self._plan, live, self._peers, route, self._unread_bytes)
        return seats

    def _on_message(
        self, where: ReplicaId, peer: Peer, message: Message, attached: Attached
    ) -> None:
        match message:
            case Ack() if peer.out is not None:
                peer.out.acknowledged(message.numbers, kept=message.kept)
            case Credit() if peer.out is not None:
                peer.out.credited(message.key, message.seqs)
            case Progress() | Whole() | Marks() | Finished() | Failed() | Cancelled():
                live = self._find(message.key)
                if live is not None:
                    self._stage_said(live, where, message)
            case SessionOpened() | SessionClosed():
                self.desk.answered(where, message)
            case _:
                attached.close()
                raise ProtocolError(f"a stage does not say `{type(message).__name__}`")

    def _stage_said(
        self, live: Live, where: ReplicaId, message: Progress | Whole | Marks | Terminal
    ) -> None:
        match message:
            case Whole(key=key):
                now = self._loop.time()
                self._act(self._dispatcher.whole(key.rid, key.epoch, where.stage, now))
            case Marks():
                self._marked(live, where, message)
            case Progress():
                live.running.progress(where.stage, StageState.RUNNING, message.units)
            case Finished():
                live.running.finished(where.stage, message)
                self._observers.stage_finished(live.running.name, self._seat(where), message)
                key, now = message.key, self._loop.time()
                self._act(self._dispatcher.finished(key.rid, key.epoch, where.stage, now))
            case Failed() | Cancelled():
                self._failed(where, message.key, failure_of(message, self._seat(where)))

    def _marked(self, live: Live, where: ReplicaId, marks: Marks) -> None:
        peer = self._peers.get(where)
        is_near = peer is not None and peer.stream.is_near
        marks = marks if is_near else told_here(marks, live.told_at[where.stage])
        found = StageMarks(seat=self._seat(where), marks=marks, is_near=is_near)
        self._observers.stage_marks(live.running.name, found)

    def _sent(self, key: Key, error: ValueError | None) -> None:
        """A prompt that had to wait for room has gone, or was refused."""
        if self._find(key) is not None and error is not None:
            self._refused(key.rid, error)

    def _refused(self, name: str, error: ValueError) -> None:
        self.end(name, InvalidRequestError(f"the prompt cannot be carried: {error}"))

    def _find(self, key: Key) -> Live | None:
        live = self._live.get(key.rid)
        return live if live is not None and live.key == key else None

    def _error(self, name: str, where: ReplicaId, told: str) -> StageFailedError:
        machine = self._dispatcher.machine(name)
        return StageFailedError(
            f"{self._seat(where)} {told}",
            stage=self._plan.stage(where.stage).name,
            replica=where.replica,
            retryable=machine is None or not machine.has_output,
        )

    def _failed(self, where: ReplicaId, key: Key, error: str | StagemeshError) -> None:
        """A stage has failed a request, or has forgotten it."""
        now = self._loop.time()
        self._act(self._dispatcher.failed(key.rid, key.epoch, where.stage, error, now))

    def _leave(self, name: str, ticket: int) -> None:
        live = self._live.get(name)
        if live is not None and live.ticket == ticket:
            self.end(name, ClosedError("the request was left"))

    def end(self, name: str, error: StagemeshError) -> None:
        """End a request because of `error`; one that has ended stays as it is."""
        self._act(self._dispatcher.leave(name, error, self._loop.time()))

    def _tick(self) -> None:
        self._act(self._dispatcher.tick(self._loop.time()))
        self._deadline.set(self._dispatcher.next_deadline)

    def tell(self, where: ReplicaId, message: Message) -> bool:
        """Send to a replica; whether there is one."""
        peer = self._peers.get(where)
        if peer is not None:
            peer.stream.send(message)
        return peer is not None

    def _act(self, actions: Iterable[Action]) -> None:
        """Carry out what the dispatcher says, in order."""
        for action in actions:
            live = self._live[action.name]
            match action:
                case Begin():
                    self._begin(action)
                case Enter(name=name, route=route, turn=turn):
                    self._observers.entered(name, self._tell(live, route, turn))
                case CancelAt(stage=stage):
                    live.cancel(self._peers, stage)
                case Ended(error=error, stage=failed):
                    if failed is not None:
                        live.running.progress(failed, StageState.FAILED, {})
                    live.running.end(error)
                    outcome = outcome_of(error, is_closing=self._closed)
                    self._observers.ended(action.name, outcome, error)
                case Settled():
                    self._forget(live)

    def _forget(self, live: Live) -> None:
        del self._live[live.call.request_id]
        live.drop(self._peers)
        self.desk.settled(live.call)
        self._observers.settled(live.call.request_id)
        self._waits.tell()
