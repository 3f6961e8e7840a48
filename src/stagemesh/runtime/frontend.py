"""The frontend: admits requests, routes them, follows them, and gathers what final stages say.

It lives on one asyncio loop and waits for nothing but its user. Decisions are made by the pure
machines in `runtime/core`; this is the shell that carries them out on streams.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
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
from stagemesh.runtime.core.request import Action, End, Release, Request, SendCancel
from stagemesh.runtime.core.router import Router
from stagemesh.runtime.edge import Connector, EdgeIn, EdgeOut, Peer
from stagemesh.runtime.messages import (
    Ack,
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
from stagemesh.runtime.running import Call, Running, Seat
from stagemesh.runtime.stream import Stream
from stagemesh.runtime.supervisor import Place
from stagemesh.spec.patterns import Policy
from stagemesh.spec.payload import Payload

_log: Final = logging.getLogger(__name__)


@dataclass(eq=False, slots=True, kw_only=True)
class _Live:
    """A request that some replica still holds."""

    machine: Request
    route: Mapping[int, int]
    running: Running
    deadline: asyncio.TimerHandle | None = None


class Frontend:
    """All requests of one caller."""

    def __init__(
        self,
        plan: Plan,
        callers: Mapping[Place, socket.socket],
        on_lost: Callable[[Place], None],
        *,
        seed: int | None = None,
    ) -> None:
        """Take over the streams to all replicas; `on_lost` hears of one that ended.

        `seed` makes the policy `random` repeatable.
        """
        self._plan: Final = plan
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._routers = {
            stage.stage_id: Router(len(stage.replicas), Policy(stage.policy), seed=seed)
            for stage in plan.stages
        }
        self._live: dict[str, _Live] = {}
        self._epoch = 0
        self._closed = False
        self._peers: dict[Place, Peer] = {}
        for place, sock in callers.items():
            self._attach(place, sock)

    @property
    def in_flight(self) -> Mapping[int, tuple[int, ...]]:
        """Requests bound to each replica, by stage id."""
        return {stage: router.in_flight for stage, router in self._routers.items()}

    def open(self, call: Call) -> Running:
        """Submit a request to one replica of every stage.

        Raises `InvalidRequestError` for a name in use or a prompt that cannot be carried, and
        `StageFailedError` when a stage has no replica left.
        """
        if self._closed:
            raise ClosedError("the system is closed")
        if call.request_id in self._live:
            raise InvalidRequestError(f"request `{call.request_id}` is still running")
        if not 0 < len(call.request_id) <= messages.MAX_NAME:
            raise InvalidRequestError(f"a request's name has 1 to {messages.MAX_NAME} characters")
        self._epoch += 1
        key = Key(rid=call.request_id, epoch=self._epoch)
        route = self._route()
        try:
            submits = self._submits(key, route, call)
        except InvalidRequestError:
            self._release(route)
            raise
        seats = {
            stage.stage_id: Seat(stage=stage.name, replica=route[stage.stage_id])
            for stage in self._plan.stages
        }
        machine = Request(route)
        running = Running(key, call, seats, lambda: self._leave(live))
        live = _Live(machine=machine, route=route, running=running)
        self._live[key.rid] = live
        for stage in seats:
            running.progress(stage, StageState.WAITING, {})
        for stage, submit in submits.items():
            self._send(live, stage, submit)
        self._prompt(live, call.prompt)
        if call.timeout_s is not None:
            error = DeadlineError(f"request `{key.rid}` not done after {call.timeout_s:g} s")
            live.deadline = self._loop.call_later(call.timeout_s, self._cancel, live, error)
        return running

    def down(self, place: Place, reason: str) -> None:
        """A replica is gone: what is bound to it fails, and it gets nothing more."""
        self._routers[place.stage].down(place.replica)
        peer = self._peers.pop(place, None)
        if peer is not None:
            peer.close()
        bound = [live for live in self._live.values() if live.route[place.stage] == place.replica]
        for live in bound:
            self._failed(live, place, reason)
        if not bound:
            _log.error("%s", reason)  # no request tells of it

    def close(self) -> None:
        """End every request and close every stream; calling it again does nothing."""
        self._closed = True
        for live in list(self._live.values()):
            self._cancel(live, ClosedError("the system was closed while the request ran"))
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def _attach(self, place: Place, sock: socket.socket) -> None:
        def on_message(message: Message, fds: tuple[int, ...]) -> None:
            self._on_message(place, peer, message, fds)

        def on_eof() -> None:
            self._routers[place.stage].down(place.replica)
            self._on_lost(place)  # and `down` comes once it is known why

        peer = Peer(stream=Stream(sock, on_message, on_eof))
        connector = Connector.to_caller()
        peer.out = EdgeOut(peer.stream, connector.sender(), self._sent)
        peer.into = EdgeIn(peer.stream, connector)
        self._peers[place] = peer

    def _route(self) -> dict[int, int]:
        """Bind a replica of every stage, or none at all."""
        route: dict[int, int] = {}
        for stage in self._plan.stages:
            replica = self._routers[stage.stage_id].pick()
            if replica is None:
                self._release(route)
                raise StageFailedError(
                    f"stage `{stage.name}` has no replica left", stage=stage.name
                )
            route[stage.stage_id] = replica
        return route

    def _release(self, route: Mapping[int, int]) -> None:
        for stage, replica in route.items():
            self._routers[stage].release(replica)

    def _submits(self, key: Key, route: Mapping[int, int], call: Call) -> dict[int, Submit]:
        """Return what each stage is told, consumers first, all of it known to be sendable."""
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
                messages.encode(submit)
            except (ProtocolError, TypeError, ValueError, OverflowError) as error:
                raise InvalidRequestError(f"the request cannot be sent: {error}") from error
            submits[stage.stage_id] = submit
        return submits

    def _prompt(self, live: _Live, prompt: Payload) -> None:
        for stage in self._plan.stages:
            peer = self._peer(live, stage.stage_id)
            if not stage.input_sources and peer is not None and peer.out is not None:
                try:
                    peer.out.send(live.running.key, prompt, last=True)
                except ValueError as error:
                    refusal = InvalidRequestError(f"the prompt cannot be carried: {error}")
                    self._cancel(live, refusal)
                    raise refusal from error

    def _send(self, live: _Live, stage: int, message: Message) -> None:
        peer = self._peer(live, stage)
        if peer is not None:  # else it has died, which ends the request in its own way
            peer.stream.send(message)

    def _peer(self, live: _Live, stage: int) -> Peer | None:
        return self._peers.get(Place(stage=stage, replica=live.route[stage]))

    def _on_message(self, place: Place, peer: Peer, message: Message, fds: tuple[int, ...]) -> None:
        match message:
            case Chunk() if peer.into is not None:
                self._output(place, peer.into, message, fds)
            case Ack() if peer.out is not None:
                peer.out.acknowledged(message.number)
            case Progress() | Finished() | Failed() | Cancelled():
                live = self._find(message.key)
                if live is not None:
                    self._stage_said(live, place, message)
            case _:
                for fd in fds:
                    os.close(fd)
                raise ProtocolError(f"a stage does not say `{type(message).__name__}`")

    def _stage_said(
        self, live: _Live, place: Place, message: Progress | Finished | Failed | Cancelled
    ) -> None:
        match message:
            case Progress():
                live.running.progress(place.stage, StageState.RUNNING, message.units)
            case Finished():
                live.running.finished(place.stage, message)
                self._act(live, live.machine.finished(place.stage))
            case Failed(invalid=True):
                name = self._plan.stage(place.stage).name
                error = InvalidRequestError(
                    f"stage `{name}`: {message.message}", stage=name, replica=place.replica
                )
                self._fail(live, place, error)
            case Failed():
                name = self._plan.stage(place.stage).name
                told = f"stage `{name}` replica `{place.replica}` failed: {message.message}"
                self._failed(live, place, told)
            case Cancelled():
                self._failed(live, place, "it was dropped by the stage")

    def _output(self, place: Place, edge: EdgeIn, chunk: Chunk, fds: tuple[int, ...]) -> None:
        live = self._find(chunk.key)
        if live is None or not live.machine.output():
            edge.discard(chunk, fds)
            return
        try:
            payload = edge.take(chunk, fds)
        except ValueError as error:
            name = self._plan.stage(place.stage).name
            told = f"an output of stage `{name}` was refused: {error}"
            self._cancel(live, StageFailedError(told, stage=name, replica=place.replica))
            return
        stage = self._plan.stage(place.stage)
        output = OmniOutput(
            request_id=chunk.key.rid,
            stage=stage.name,
            kind=stage.final_output_type or "",
            payload=_owned(payload),
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

    def _failed(self, live: _Live, place: Place, told: str) -> None:
        error = StageFailedError(
            told,
            stage=self._plan.stage(place.stage).name,
            replica=place.replica,
            retryable=not live.machine.has_output,
        )
        self._fail(live, place, error)

    def _fail(self, live: _Live, place: Place, error: StagemeshError) -> None:
        if live.machine.running:
            live.running.progress(place.stage, StageState.FAILED, {})
        self._act(live, live.machine.failed(place.stage, error))

    def _leave(self, live: _Live) -> None:
        self._cancel(live, ClosedError("the request was left"))

    def _cancel(self, live: _Live, error: StagemeshError) -> None:
        self._act(live, live.machine.cancel(error))

    def _act(self, live: _Live, actions: Iterable[Action]) -> None:
        key = live.running.key
        for action in actions:
            match action:
                case SendCancel(stage=stage):
                    self._send(live, stage, Cancel(key=key))
                    peer = self._peer(live, stage)
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


def _owned(payload: Payload) -> Payload:
    """A copy in memory of its own."""
    buffers = tuple(
        replace(buffer, data=memoryview(bytes(buffer.data))) for buffer in payload.buffers
    )
    return Payload(meta=dict(payload.meta), buffers=buffers)
