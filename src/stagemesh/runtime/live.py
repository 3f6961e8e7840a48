"""What the frontend keeps of a request beside its machines, and who waits until there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from stagemesh.errors import InvalidRequestError
from stagemesh.plan.values import Plan
from stagemesh.runtime.core.actions import Ask
from stagemesh.runtime.core.dispatcher import Dispatcher
from stagemesh.runtime.core.request import RequestMachine
from stagemesh.runtime.edge import Peer
from stagemesh.runtime.hints import routing_keys
from stagemesh.runtime.messages import Cancel, Cancelled, Failed, Key
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.running import Call, Running, Seat
from stagemesh.runtime.telemetry import Traffic


@dataclass(eq=False, slots=True, kw_only=True)
class Live:
    """A request that is not settled."""

    call: Call
    running: Running
    ticket: int
    trace: str | None
    """The trace context under which somebody hears of it, if anybody does."""
    key: Key | None = None
    machine: RequestMachine | None = None
    """Its machine, once it has begun."""
    route: dict[int, int] = field(default_factory=dict)
    """The replica of each stage that was told."""
    turns: dict[int, int] = field(default_factory=dict)
    """When those were told that were not when it began, in one count with the epochs."""
    told_at: dict[int, float] = field(default_factory=dict)
    """When each stage was told, on the monotonic clock."""

    def goes_to(self, route: Mapping[int, int], now: float, turn: int | None = None) -> None:
        """These replicas are told now, the first ones or others in their turn."""
        self.route |= route
        self.told_at |= dict.fromkeys(route, now)
        if turn is not None:
            self.turns |= dict.fromkeys(route, turn)

    def seats(self, plan: Plan, stages: Iterable[int]) -> Mapping[int, Seat]:
        """Where it sits in these stages."""
        return {
            stage: Seat(stage=plan.stage(stage).name, replica=self.route[stage]) for stage in stages
        }

    def peer(self, peers: Mapping[ReplicaId, Peer], stage: int) -> Peer | None:
        """The stream to its replica of a stage, unless that has died."""
        return peers.get(ReplicaId(stage=stage, replica=self.route[stage]))

    def cancel(self, peers: Mapping[ReplicaId, Peer], stage: int) -> None:
        """Tell a replica to forget it."""
        peer = self.peer(peers, stage)
        if peer is not None and self.key is not None:
            peer.stream.send(Cancel(key=self.key))
            if peer.out is not None:
                peer.out.drop(self.key)

    def drop(self, peers: Mapping[ReplicaId, Peer]) -> None:
        """Forget it on all streams: no replica holds it."""
        for stage in self.route:
            if (peer := self.peer(peers, stage)) is not None and self.key is not None:
                peer.drop(self.key)

    def processes(self, peers: Mapping[ReplicaId, Peer]) -> Mapping[int, tuple[int, int]]:
        """Replica and incarnation of every stage that lives."""
        places = (ReplicaId(stage=stage, replica=where) for stage, where in self.route.items())
        return {
            place.stage: (place.replica, peers[place].incarnation)
            for place in places
            if place in peers
        }


class Waits:
    """Who waits until a replica, or all of them, have no request."""

    def __init__(self, is_busy: Callable[[ReplicaId | None], bool]) -> None:
        """`is_busy` says whether a replica has any, or for `None` whether some has."""
        self._is_busy = is_busy
        self._waits: list[tuple[ReplicaId | None, asyncio.Future[None]]] = []

    def idle(self, where: ReplicaId | None) -> asyncio.Future[None]:
        """Done once it is so; needs no time where it is so already."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits.append((where, future))
        self.tell()
        return future

    def tell(self) -> None:
        """A request has gone: tell those who waited for that."""
        for where, future in self._waits:
            if not future.done() and not self._is_busy(where):
                future.set_result(None)
        self._waits = [(where, future) for where, future in self._waits if not future.done()]


def ask_of(call: Call) -> Ask:
    """Return a request as the dispatcher sees it."""
    return Ask(
        name=call.request_id,
        keys=routing_keys(call.request_id, call.prompt, call.route),
        cost=call.route.cost,
        parent=call.route.follows,
        timeout_s=call.timeout_s,
        session=call.session,
    )


def failure_of(said: Failed | Cancelled, seat: Seat) -> str | InvalidRequestError:
    """Return what has become of a request that a stage has failed, or has forgotten."""
    if isinstance(said, Cancelled):
        return f"it was dropped by {seat}"
    if said.invalid:
        return InvalidRequestError(
            f"{seat}: {said.message}", stage=seat.stage, replica=seat.replica
        )
    return f"{seat} failed: {said.message}"


def traffic_of(dispatcher: Dispatcher) -> Traffic:
    """Count the requests of a dispatcher."""
    gate = dispatcher.gate
    queued = {
        replica: len(dispatcher.admission.waiting(replica))
        for replica in dispatcher.bindings[gate].router.backlog
    }
    num_queued = sum(queued.values()) + dispatcher.turns.num_behind
    return Traffic(
        num_queued=num_queued,
        num_begun=len(dispatcher.names) - num_queued,
        queued={gate: queued},
        bound={
            stage: dict(bindings.router.backlog) for stage, bindings in dispatcher.bindings.items()
        },
    )
