"""What stages are told of a request: the first ones when it begins, others when they are chosen."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Final

from stagemesh.errors import InvalidRequestError
from stagemesh.plan.values import Plan
from stagemesh.runtime import messages
from stagemesh.runtime.core.unread import share_of
from stagemesh.runtime.edge import Peer
from stagemesh.runtime.live import Live
from stagemesh.runtime.messages import Key, ProtocolError, Submit, Targets
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.running import Call
from stagemesh.runtime.session_messages import MAX_NAME
from stagemesh.spec.frozen import frozen

_LARGEST: Final = 2**63 - 1
"""A number that takes as much room as any."""
_NOWHERE: Final = (_LARGEST, _LARGEST)
"""A process that is not to be found, as one that has died."""


@frozen
class _Known:
    """What is known of a request when stages are told."""

    key: Key
    """Its name and epoch."""
    processes: Mapping[int, tuple[int, int]]
    """Replica and incarnation of each stage that it is known to go to."""
    turns: Mapping[int, int] = field(default_factory=dict)
    """The turns of those that are told after it began."""
    unread_bytes: int = _LARGEST
    """What may be unread of all that it puts out."""
    trace: str | None = None
    """The trace context under which somebody hears of it."""


def check_sendable(plan: Plan, call: Call) -> None:
    """Raise `InvalidRequestError` for a request that no stage could be told of, now or later."""
    if not 0 < len(call.request_id) <= MAX_NAME:
        raise InvalidRequestError(f"a request's name has 1 to {MAX_NAME} characters")
    everywhere = {stage.stage_id: _NOWHERE for stage in plan.stages}
    turns = dict.fromkeys(everywhere, _LARGEST)
    key = Key(rid=call.request_id, epoch=_LARGEST)
    _submits(plan, call, _Known(key=key, processes=everywhere, turns=turns), everywhere)


def tell(
    plan: Plan,
    live: Live,
    peers: Mapping[ReplicaId, Peer],
    stages: Collection[int],
    unread_bytes: int,
) -> None:
    """Tell the replicas of `stages` of a request, consumers first, then who feeds them already.

    One that has died is not told: that ends the request in its own way.
    """
    assert live.key is not None, "it has begun"
    processes = live.processes(peers)
    known = _Known(
        key=live.key,
        processes={stage: processes.get(stage, _NOWHERE) for stage in live.route},
        turns=live.turns,
        unread_bytes=unread_bytes,
        trace=live.trace,
    )
    for stage, submit in _submits(plan, live.call, known, stages).items():
        if (peer := live.peer(peers, stage)) is not None:
            peer.stream.send_frame(submit)
    for source in live.route.keys() - set(stages):
        fed = [edge.target for edge in plan.edges if edge.source == source]
        targets = {stage: known.processes[stage] for stage in fed if stage in stages}
        peer = live.peer(peers, source)
        if targets and peer is not None:
            turn = live.turns[next(iter(targets))]
            peer.stream.send(Targets(key=live.key, targets=targets, turn=turn))


def give_prompt(plan: Plan, live: Live, peers: Mapping[ReplicaId, Peer]) -> None:
    """Send the prompt to the stages that take it; raises `ValueError` when it cannot be carried."""
    assert live.key is not None, "it has begun"
    for stage in plan.stages:
        peer = None if stage.input_sources else live.peer(peers, stage.stage_id)
        if peer is not None and peer.out is not None:
            peer.out.send(live.key, live.call.prompt, last=True)


def _submits(plan: Plan, call: Call, known: _Known, stages: Collection[int]) -> Mapping[int, bytes]:
    """Encode what each of `stages` is told, consumers first."""
    submits = {}
    session = None if call.session is None else call.session.name
    num_finals = sum(stage.final_output_type is not None for stage in plan.stages)
    window = share_of(known.unread_bytes, num_finals)
    for stage in reversed(plan.stages):
        if stage.stage_id not in stages:
            continue
        fed = [edge.target for edge in plan.edges if edge.source == stage.stage_id]
        targets = {target: known.processes[target] for target in fed if target in known.processes}
        submit = Submit(
            key=known.key,
            params=dict(call.params.get(stage.stage_id, {})),
            targets=targets,
            window=window,
            progress=call.on_progress is not None,
            trace=known.trace,
            turn=known.turns.get(stage.stage_id),
            turns={target: known.turns[target] for target in targets if target in known.turns},
            session=session,
        )
        try:
            submits[stage.stage_id] = messages.encode(submit)
        except (ProtocolError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidRequestError(f"the request cannot be sent: {error}") from error
    return submits
