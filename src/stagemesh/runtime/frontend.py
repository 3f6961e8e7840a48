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
from dataclasses import dataclass
from typing import Final

from stagemesh.errors import (
    ClosedError,
    DeadlineError,
    InvalidRequestError,
    StageFailedError,
    StagemeshError,
)
from stagemesh.plan.values import Plan
from stagemesh.runtime import messages
from stagemesh.runtime.core.request import Action, End, Release, RequestMachine, SendCancel
from stagemesh.runtime.core.router import Router
from stagemesh.runtime.edge import Connector, EdgeIn, EdgeOut, Peer
from stagemesh.runtime.messages import (
    Ack,
    Attached,
    Cancel,
    Cancelled,
    Chunk,
    Failed,
    Finished,
    Key,
    Message,
    Progress,
    ProtocolError,
    Submit,
)
from stagemesh.runtime.outputs import OmniOutput, StageState
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.running import Call, Running, Seat
from stagemesh.runtime.stream import Stream
from stagemesh.spec.patterns import Policy

_log: Final = logging.getLogger(__name__)


@dataclass(eq=False, slots=True, kw_only=True)
class _Live:
    """A request that some replica still holds."""

    machine: RequestMachine
    route: Mapping[int, int]
    running: Running
    deadline: asyncio.TimerHandle | None = None


class Frontend:
    """All requests of one caller."""

    def __init__(
        self,
        plan: Plan,
        callers: Mapping[ReplicaId, socket.socket],
        on_lost: Callable[[ReplicaId, str | None], None],
    ) -> None:
        """Take over the streams to all replicas; `on_lost` hears of one that ended, and why."""
        self._plan: Final = plan
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._routers = {
            stage.stage_id: Router(len(stage.replicas), Policy(stage.policy))
            for stage in plan.stages
        }
        self._live: dict[str, _Live] = {}
        self._epoch = 0
        self._closed = False
        self._draining = False
        self._waits: list[tuple[ReplicaId | None, asyncio.Future[None]]] = []
        self._peers: dict[ReplicaId, Peer] = {}
        for where, sock in callers.items():
            self._attach(where, sock)

    @property
    def draining(self) -> bool:
        """Whether it takes no more requests."""
        return self._draining

    @property
    def in_flight(self) -> Mapping[int, tuple[int, ...]]:
        """Requests bound to each replica, by stage id."""
        return {stage: router.in_flight for stage, router in self._routers.items()}

    def open(self, call: Call) -> Running:
        """Submit a request to one replica of every stage.

        Raises `InvalidRequestError` for a name in use or a prompt that cannot be carried, and
        `StageFailedError` when a stage has no replica left.
        """
        if self._closed or self._draining:
            why = "is closed" if self._closed else "takes no more requests: it is shutting down"
            raise ClosedError(f"the system {why}")
        if call.request_id in self._live:
            raise InvalidRequestError(f"request `{call.request_id}` is still running")
        if not 0 < len(call.request_id) <= messages.MAX_NAME:
            raise InvalidRequestError(f"a request's name has 1 to {messages.MAX_NAME} characters")
        self._epoch += 1
        key = Key(rid=call.request_id, epoch=self._epoch)
        route = self._route()
        try:
            submits = self._submits(key, route, call)
        except BaseException:
            self._release(route)
            raise
        seats = {
            stage.stage_id: Seat(stage=stage.name, replica=route[stage.stage_id])
            for stage in self._plan.stages
        }
        machine = RequestMachine(route)
        # by key: a request and its live record must not hold each other once they are forgotten
        running = Running(key, call, seats, functools.partial(self._leave, key))
        live = _Live(machine=machine, route=route, running=running)
        self._live[key.rid] = live
        try:
            self._begin(live, submits, call)
        except BaseException:
            self._leave(key)  # nobody else holds it: without this its slots stay taken
            raise
        return running

    def up(self, where: ReplicaId, caller: socket.socket) -> None:
        """A replica has joined, or come back, and all its neighbours know it: it may be used."""
        if self._closed:
            caller.close()
        else:
            self._attach(where, caller)
            self._routers[where.stage].join(where.replica)

    def hold(self, where: ReplicaId) -> None:
        """Give a replica nothing more for now; what it has goes on."""
        self._routers[where.stage].leave(where.replica)

    def resume(self, where: ReplicaId) -> None:
        """A replica that was held takes requests again."""
        if where in self._peers:
            self._routers[where.stage].join(where.replica)

    def down(self, where: ReplicaId, reason: str) -> None:
        """A replica is gone: what it still held fails, and it gets nothing more."""
        self.hold(where)
        peer = self._peers.get(where)
        if peer is not None:
            peer.stream.read_rest()  # what had ended there before is not failed by the death
            del self._peers[where]
            peer.close()
        told = [self._failed(live, where, reason) for live in self._bound(where)]
        if not any(told):
            _log.warning("%s", reason)  # no request tells of it

    def expel(self, where: ReplicaId) -> None:
        """A replica leaves, and has had its time: what is still bound to it is cancelled."""
        for live in self._bound(where):
            told = f"{self._name_of(where)} left before the request was done"
            self._cancel(live, self._error(live, where, told))

    def leave(self, where: ReplicaId) -> None:
        """Close the stream to a replica of which nothing more is wanted."""
        peer = self._peers.pop(where, None)
        if peer is not None:
            peer.close()

    def drain(self) -> None:
        """Take no more requests; those that run go on."""
        self._draining = True

    def idle(self, where: ReplicaId | None = None) -> asyncio.Future[None]:
        """Done once no request is bound to a replica, or to any; needs no time where none is."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waits.append((where, future))
        self._tell_idle()
        return future

    def close(self) -> None:
        """End every request and close every stream; calling it again does nothing."""
        self._closed = True
        for live in list(self._live.values()):
            self._cancel(live, ClosedError("the system was closed while the request ran"))
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def _attach(self, where: ReplicaId, sock: socket.socket) -> None:
        def on_message(message: Message, attached: Attached) -> None:
            self._on_message(where, peer, message, attached)

        def on_eof(reason: str | None) -> None:
            self.hold(where)
            self._on_lost(where, reason)  # and `down` comes once the process has been reaped

        connector = Connector.to_caller(sock)
        stream = Stream(sock, on_message, on_eof, bulk_limit=connector.bulk_limit)
        peer = Peer(stream=stream)
        peer.out = EdgeOut(peer.stream, connector.sender(), self._sent)
        peer.into = EdgeIn(peer.stream, connector)
        self._peers[where] = peer

    def _bound(self, where: ReplicaId) -> list[_Live]:
        """Requests that go through a replica, whether they are done there or not."""
        return [live for live in self._live.values() if live.route[where.stage] == where.replica]

    def _tell_idle(self) -> None:
        for where, future in self._waits:
            is_busy = self._live if where is None else self._bound(where)
            if not is_busy and not future.done():
                future.set_result(None)
        self._waits = [(where, future) for where, future in self._waits if not future.done()]

    def _name_of(self, where: ReplicaId) -> str:
        return f"stage `{self._plan.stage(where.stage).name}` replica `{where.replica}`"

    def _route(self) -> dict[int, int]:
        """Bind a replica of every stage, or none at all."""
        route: dict[int, int] = {}
        for stage in self._plan.stages:
            replica = self._routers[stage.stage_id].pick()
            if replica is None:
                self._release(route)
                raise StageFailedError(
                    f"stage `{stage.name}` has no replica left", stage=stage.name, retryable=True
                )
            route[stage.stage_id] = replica
        return route

    def _release(self, route: Mapping[int, int]) -> None:
        for stage, replica in route.items():
            self._routers[stage].release(replica)

    def _submits(self, key: Key, route: Mapping[int, int], call: Call) -> dict[int, bytes]:
        """Encode what each stage is told, consumers first, so that all is known to be sendable."""
        submits = {}
        for stage in reversed(self._plan.stages):
            targets = {
                edge.target: route[edge.target]
                for edge in self._plan.edges
                if edge.source == stage.stage_id
            }
            params = dict(call.params.get(stage.stage_id, {}))
            submit = Submit(key=key, params=params, targets=targets)
            try:
                submits[stage.stage_id] = messages.encode(submit)
            except (ProtocolError, TypeError, ValueError, OverflowError, RecursionError) as error:
                raise InvalidRequestError(f"the request cannot be sent: {error}") from error
        return submits

    def _begin(self, live: _Live, submits: Mapping[int, bytes], call: Call) -> None:
        """Start the clock, then tell the stages, and give the prompt to those that take it."""
        key = live.running.key
        if call.timeout_s is not None:
            live.deadline = self._loop.call_later(call.timeout_s, self._late, live, call.timeout_s)
        for stage in live.route:
            live.running.progress(stage, StageState.WAITING, {})
        for stage, submit in submits.items():
            peer = self._peer(live, stage)
            if peer is not None:  # else it has died, which ends the request in its own way
                peer.stream.send_frame(submit)
        for planned in self._plan.stages:
            peer = self._peer(live, planned.stage_id)
            if not planned.input_sources and peer is not None and peer.out is not None:
                try:
                    peer.out.send(key, call.prompt, last=True)
                except ValueError as refusal:
                    told = f"the prompt cannot be carried: {refusal}"
                    raise InvalidRequestError(told) from refusal

    def _peer(self, live: _Live, stage: int) -> Peer | None:
        return self._peers.get(ReplicaId(stage=stage, replica=live.route[stage]))

    def _on_message(
        self, where: ReplicaId, peer: Peer, message: Message, attached: Attached
    ) -> None:
        match message:
            case Chunk() if peer.into is not None:
                self._output(where, peer.into, message, attached)
            case Ack() if peer.out is not None:
                peer.out.acknowledged(message.number)
            case Progress() | Finished() | Failed() | Cancelled():
                live = self._find(message.key)
                if live is not None:
                    self._stage_said(live, where, message)
            case _:
                attached.close()
                raise ProtocolError(f"a stage does not say `{type(message).__name__}`")

    def _stage_said(
        self, live: _Live, where: ReplicaId, message: Progress | Finished | Failed | Cancelled
    ) -> None:
        match message:
            case Progress():
                live.running.progress(where.stage, StageState.RUNNING, message.units)
            case Finished():
                live.running.finished(where.stage, message)
                self._act(live, live.machine.finished(where.stage))
            case Failed(invalid=True):
                name = self._plan.stage(where.stage).name
                told = f"{self._name_of(where)}: {message.message}"
                error = InvalidRequestError(told, stage=name, replica=where.replica)
                self._fail(live, where, error)
            case Failed():
                self._failed(live, where, f"{self._name_of(where)} failed: {message.message}")
            case Cancelled():
                self._failed(live, where, f"it was dropped by {self._name_of(where)}")

    def _output(self, where: ReplicaId, edge: EdgeIn, chunk: Chunk, attached: Attached) -> None:
        live = self._find(chunk.key)
        if live is None or not live.machine.output():
            edge.discard(chunk, attached)
            return
        try:
            payload = edge.take(chunk, attached)
        except ValueError as error:
            name = self._plan.stage(where.stage).name
            told = f"an output of {self._name_of(where)} was refused: {error}"
            self._cancel(live, StageFailedError(told, stage=name, replica=where.replica))
            return
        stage = self._plan.stage(where.stage)
        output = OmniOutput(
            request_id=chunk.key.rid,
            stage=stage.name,
            kind=stage.final_output_type or "",
            payload=payload.copied(),
            final=chunk.last,
        )
        payload.release()
        live.running.output(output)

    def _sent(self, key: Key, error: ValueError | None) -> None:
        """A prompt that had to wait for room has gone, or was refused."""
        live = self._find(key)
        if live is not None and error is not None:
            self._cancel(live, InvalidRequestError(f"the prompt cannot be carried: {error}"))

    def _find(self, key: Key) -> _Live | None:
        live = self._live.get(key.rid)
        return live if live is not None and live.running.key == key else None

    def _error(self, live: _Live, where: ReplicaId, told: str) -> StageFailedError:
        return StageFailedError(
            told,
            stage=self._plan.stage(where.stage).name,
            replica=where.replica,
            retryable=not live.machine.has_output,
        )

    def _failed(self, live: _Live, where: ReplicaId, told: str) -> bool:
        return self._fail(live, where, self._error(live, where, told))

    def _fail(self, live: _Live, where: ReplicaId, error: StagemeshError) -> bool:
        """A stage has failed a request; whether that is what ends it for its user."""
        actions = live.machine.failed(where.stage, error)
        is_told = any(isinstance(action, End) for action in actions)
        if is_told:
            live.running.progress(where.stage, StageState.FAILED, {})
        self._act(live, actions)
        return is_told

    def _late(self, live: _Live, timeout_s: float) -> None:
        """The deadline has passed; the first stage that has not finished is named."""
        stage = live.machine.owing[0]
        where = ReplicaId(stage=stage, replica=live.route[stage])
        name = self._plan.stage(stage).name
        told = f"request `{live.running.key.rid}` not done after {timeout_s:g} s"
        told += f" by {self._name_of(where)}"
        self._cancel(live, DeadlineError(told, stage=name, replica=where.replica))

    def _leave(self, key: Key) -> None:
        live = self._find(key)
        if live is not None:
            self._cancel(live, ClosedError("the request was left"))

    def _cancel(self, live: _Live, error: StagemeshError) -> None:
        self._act(live, live.machine.cancel(error))

    def _act(self, live: _Live, actions: Iterable[Action]) -> None:
        key = live.running.key
        for action in actions:
            match action:
                case SendCancel(stage=stage):
                    peer = self._peer(live, stage)
                    if peer is not None:
                        peer.stream.send(Cancel(key=key))
                    if peer is not None and peer.out is not None:
                        peer.out.drop(key)
                case Release(stage=stage):
                    self._routers[stage].release(live.route[stage])
                case End(error=error):
                    if live.deadline is not None:
                        live.deadline.cancel()
                    live.running.end(error)
        if live.machine.settled:
            self._forget(live)

    def _forget(self, live: _Live) -> None:
        key = live.running.key
        if self._live.get(key.rid) is live:
            del self._live[key.rid]
        for stage in live.route:
            peer = self._peer(live, stage)
            if peer is not None and peer.into is not None:
                peer.into.drop(key)
        if self._waits:
            self._tell_idle()
