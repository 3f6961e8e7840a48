"""The I/O thread of a stage process: one asyncio loop with all streams of the process.

A stage that no longer understands its supervisor is worse than one that died: it says why, and
dies. Whoever else says what cannot be understood is reported and no longer listened to; what he had
to do with fails when the supervisor has ended him, and everything else goes on.
The end of the supervisor's stream ends this process and everything it has started, at once: there
is nobody left to work for, and shared memory has no name that could stay behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Final, NoReturn

from stagemesh.plan.fingerprint import local_values
from stagemesh.plan.save import from_json
from stagemesh.plan.values import EdgePlan, Plan, StagePlan
from stagemesh.runtime.edge import Connector, EdgeIn, Peer
from stagemesh.runtime.edge_out import UNBOUNDED, EdgeOut
from stagemesh.runtime.edge_threads import settle
from stagemesh.runtime.inbox import Enter, Exit, Inbox, Quit
from stagemesh.runtime.load import CALLER, Counts
from stagemesh.runtime.messages import (
    PROTOCOL,
    Ack,
    Attached,
    Blame,
    Cancel,
    Chunk,
    Credit,
    Fatal,
    Feed,
    Meeting,
    Message,
    Met,
    PeerUp,
    Ping,
    Pong,
    ProtocolError,
    Ready,
    Setup,
    Stop,
    Submit,
    Targets,
    Welcome,
    wire_text,
)
from stagemesh.runtime.own_end import crash, end_group
from stagemesh.runtime.pipes import EXHAUSTED
from stagemesh.runtime.session_messages import (
    CloseSession,
    OpenSession,
)
from stagemesh.runtime.shapes import limits_of
from stagemesh.runtime.stage_loop import Emission
from stagemesh.runtime.stage_requests import StageRequests
from stagemesh.runtime.stream import Stream
from stagemesh.runtime.transport.tls import TlsFiles, secured, secured_feed
from stagemesh.spec.engine import Rendezvous
from stagemesh.spec.frozen import frozen

_MOST_UNTAKEN: Final = 4
"""Turns of the engine that this thread may be behind: no pause comes later."""
_SETTLE_S: Final = 1.0
"""How long connectors may take to tell their services that they are gone."""
_STOP_S: Final = 2.0
"""How long the streams may take to close; the process exits then in any case."""


@frozen
class Assignment:
    """What the supervisor wants this process to be."""

    plan: Plan
    """The whole plan."""
    stage: StagePlan
    """The stage of this process."""
    replica: int
    """Its number among the replicas of the stage."""
    rendezvous: Rendezvous | None = None
    """Where it meets its further ranks, if it has any."""
    feeds: tuple[socket.socket, ...] = ()
    """Its ways to tell them something, the one of rank 1 first."""


class StageIO:
    """Owns every socket of a stage process. Public methods are for the engine's thread."""

    def __init__(self, sock: socket.socket, inbox: Inbox) -> None:
        """Take over `sock`, the control stream to the supervisor."""
        self._sock = sock
        self._inbox = inbox
        self.counts: Final = Counts()
        self._assignment: Future[Assignment] = Future()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="stagemesh-io", daemon=True)
        self._peers: dict[tuple[int, int], Peer] = {}
        self._assigned: Assignment
        self._room = threading.Semaphore(_MOST_UNTAKEN)

    def start(self) -> Assignment:
        """Start the thread and wait for the supervisor to say what this process is."""
        self._thread.start()
        # Needs no deadline: the supervisor has one, and the end of its stream ends this process.
        return self._assignment.result()

    def ready(self, load_s: float) -> None:
        """Tell the supervisor that requests may come."""
        said = Ready(load_s=load_s, values=local_values(self._stage))
        self._loop.call_soon_threadsafe(self._control.send, said)

    def emit(self, emissions: Sequence[Emission]) -> None:
        """Hand over what the engine said; waits while this thread is several turns behind."""
        self._room.acquire()
        self._loop.call_soon_threadsafe(self._take, emissions)

    def stop(self, fatal: str | None = None) -> None:
        """Say why, when it is a failure, close every stream, and end the thread."""
        self._loop.call_soon_threadsafe(self._close, fatal)
        self._thread.join(_STOP_S)

    def _take(self, emissions: Sequence[Emission]) -> None:
        self._room.release()
        with contextlib.ExitStack() as sending:
            for peer in self._peers.values():
                sending.enter_context(peer.stream.held())
            self._requests.take(emissions)

    def _run(self) -> None:
        self._loop.set_exception_handler(crash)
        self._loop.call_soon(self._begin)
        self._loop.run_forever()
        self._loop.close()
        settle(_SETTLE_S)

    def _begin(self) -> None:
        self._control = Stream(self._sock, self._on_control, self._die)

    def _close(self, fatal: str | None) -> None:
        if fatal is not None:
            self._control.send(Fatal(reason=wire_text(fatal)))
        for peer in self._peers.values():
            peer.close()
        self._control.close()
        self._loop.stop()

    def _on_control(self, message: Message, attached: Attached) -> None:
        match message:
            case Setup(protocol=protocol) if protocol != PROTOCOL:
                raise ProtocolError(f"protocol `{protocol}` is not `{PROTOCOL}`")
            case Setup():
                self._begin_stage(message)
            case PeerUp():
                (fd,) = attached.fds
                self._attach(message, fd)
            case Meeting(address=address, port=port):
                (fd,) = attached.fds
                meeting = Rendezvous(address=address, port=port, listener=fd)
                self._assigned = replace(self._assigned, rendezvous=meeting)
            case Feed():
                (fd,) = attached.fds
                sock = socket.socket(fileno=fd)
                feed = secured_feed(sock, self._plan.launch, is_acceptor=True)
                self._assigned = replace(self._assigned, feeds=(*self._assigned.feeds, feed))
            case Ping(number=number):
                news = self.counts.news()
                self._control.send(Pong(number=number, step_s=self._inbox.away_s, load=news))
            case Welcome():
                self._assignment.set_result(self._assigned)
            case Stop():
                self._inbox.put(Quit())
            case _:
                raise ProtocolError(f"the supervisor does not say `{type(message).__name__}`")

    def _begin_stage(self, setup: Setup) -> None:
        plan = from_json(setup.plan)
        if not isinstance(plan, Plan):
            raise ProtocolError(f"the plan cannot be read: {plan[0]}")
        self._plan = plan
        self._stage = plan.stage(setup.stage)
        num_inputs = max(len(self._stage.input_sources), 1)
        self._requests = StageRequests(self._inbox, num_inputs, self._tell_caller)
        self._keeps_sessions = plan.session.duplex is not None
        self._assigned = Assignment(plan=plan, stage=self._stage, replica=setup.replica)

    def _attach(self, up: PeerUp, fd: int) -> None:
        stage = CALLER if up.stage is None else up.stage
        where = (stage, up.replica)

        def on_message(message: Message, attached: Attached) -> None:
            self._on_peer(peer, message, attached, from_caller=stage == CALLER)

        def on_eof(reason: str | None) -> None:
            if reason == EXHAUSTED:
                self._die(reason)
            if reason is not None:
                self._blame(up, reason)
            peer.close()  # and keeps its place: what still goes there is dropped
            if stage == CALLER:
                self._requests.cancel_all()

        sock = self._secured(up, socket.socket(fileno=fd))
        outgoing, incoming = self._connectors(stage, sock)
        bulk_limit = 0 if incoming is None else incoming.bulk_limit
        stream = Stream(sock, on_message, on_eof, bulk_limit=bulk_limit)
        peer = Peer(stream=stream, incarnation=up.incarnation)
        before, self._peers[where] = self._peers.get(where), peer
        if before is not None:
            before.close()
        if outgoing is not None:
            count, sent = self.counts.out(stage), self._requests.sent
            limits = UNBOUNDED if stage == CALLER else limits_of(self._plan, self._stage, stage)
            peer.out = EdgeOut(peer.stream, outgoing.sender(), sent, count, limits)
        if incoming is not None:
            peer.into = EdgeIn(peer.stream, incoming, self.counts.into(stage))
        self._control.send(Met(stage=up.stage, replica=up.replica, incarnation=up.incarnation))

    def _blame(self, up: PeerUp, reason: str) -> None:
        self._control.send(
            Blame(
                stage=up.stage,
                replica=up.replica,
                incarnation=up.incarnation,
                reason=wire_text(reason),
            )
        )

    def _secured(self, up: PeerUp, sock: socket.socket) -> socket.socket:
        files = None if up.tls is None else TlsFiles.of(self._plan.launch)
        return secured(sock, files, is_acceptor=up.tls == "acceptor")

    def _connectors(
        self, stage: int, sock: socket.socket
    ) -> tuple[Connector | None, Connector | None]:
        """The connectors to and from a peer of that stage, over `sock`."""
        if stage == CALLER:
            connector = Connector.to_caller(sock)
            return connector, connector
        here = self._stage.stage_id
        outgoing = _edge(self._plan, here, stage)
        incoming = _edge(self._plan, stage, here)
        return (
            None if outgoing is None else Connector.of_edge(outgoing).over(sock),
            None if incoming is None else Connector.of_edge(incoming).over(sock),
        )

    def _on_peer(
        self, peer: Peer, message: Message, attached: Attached, *, from_caller: bool
    ) -> None:
        match message:
            case Chunk() if peer.into is not None:
                take = partial(self._requests.chunk, peer.into, message, attached)
                peer.into.when_here(message, attached, take)
            case Ack() if peer.out is not None:
                peer.out.acknowledged(message.numbers, kept=message.kept)
            case Credit() if peer.out is not None:
                peer.out.credited(message.key, message.seqs)
            case Submit() if from_caller:
                self._submit(message)
            case Targets() if from_caller:
                self._requests.targets(message, self._outs(message.targets))
            case Cancel() if from_caller:
                self._requests.cancel(message.key)
            case OpenSession(session=name) if from_caller and self._keeps_sessions:
                self._inbox.put(Enter(session=name))
            case CloseSession(session=name) if from_caller and self._keeps_sessions:
                self._inbox.put(Exit(session=name))
            case _:
                attached.close()
                raise ProtocolError(f"a peer does not say `{type(message).__name__}`")

    def _submit(self, submit: Submit) -> None:
        route = dict(submit.targets)
        if self._stage.final_output_type is not None:
            route[CALLER] = (0, self._peers[CALLER, 0].incarnation)
        feeds = [edge.target for edge in self._plan.edges if edge.source == self._stage.stage_id]
        later = [stage for stage in feeds if stage not in route]
        self._requests.submit(submit, self._outs(route), later)

    def _outs(self, targets: Mapping[int, tuple[int, int]]) -> Mapping[int, EdgeOut] | None:
        """The edges to these; `None` when one of them is gone."""
        outs = {}
        for stage, (replica, incarnation) in targets.items():
            peer = self._peers.get((stage, replica))
            if peer is None or peer.out is None or peer.incarnation != incarnation:
                return None
            outs[stage] = peer.out
        return outs

    def _die(self, reason: str | None) -> NoReturn:
        """End this process and what it started, saying why if there is somebody to hear it."""
        if reason is not None:
            self._control.send(Fatal(reason=wire_text(reason)))
        end_group()

    def _tell_caller(self, message: Message) -> None:
        caller = self._peers.get((CALLER, 0))
        if caller is not None:
            caller.stream.send(message)


def _edge(plan: Plan, source: int, target: int) -> EdgePlan | None:
    return next(
        (edge for edge in plan.edges if (edge.source, edge.target) == (source, target)), None
    )
