"""The requests of a stage process, as its I/O thread sees them.

It stands between streams and engine thread: chunks in, chunks out, pausing what finds no room, and
one terminal word to the caller for every request, after everything that it had to say. What is for
a replica that is not chosen yet is kept until the caller has said which it is. Inputs of a
paused request are kept here without credit, so that whoever feeds it is paused in turn, and in
memory of their own, so that the edge carries those of other requests.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from stagemesh.config.plain import plain
from stagemesh.runtime.edge import EdgeIn
from stagemesh.runtime.edge_out import EdgeOut
from stagemesh.runtime.inbox import Add, Append, Forget, Inbox, Pause, Resume
from stagemesh.runtime.load import CALLER
from stagemesh.runtime.marks import MarkLog, hop_of
from stagemesh.runtime.messages import (
    Attached,
    Cancelled,
    Chunk,
    Failed,
    Finished,
    Hop,
    Key,
    Message,
    Progress,
    Submit,
    Targets,
    Terminal,
    Whole,
    wire_text,
)
from stagemesh.runtime.stage_loop import Counted, Emission, Over, Said
from stagemesh.spec.frozen import frozen
from stagemesh.spec.payload import Payload

_PROGRESS_S: Final = 0.1
"""Shortest time between two reports of progress of one request."""


@dataclass(eq=False, slots=True, kw_only=True)
class _Held:
    """A request of this process."""

    key: Key
    outs: dict[int, EdgeOut]
    """Edges that it feeds, by stage id, as far as they are known."""
    open_inputs: int
    """Incoming edges that have not said their last."""
    ins: list[EdgeIn] = field(default_factory=list)
    """Edges that have fed it."""
    waiting: int = 0
    """Chunks that wait for room; the engine is told to pause meanwhile."""
    unsent: list[Said] = field(default_factory=list)
    """What is for stages of which no replica is known yet."""
    kept: list[Append] = field(default_factory=list)
    """Inputs that have come in the pause."""
    engine_said: Terminal | None = None
    """How the engine ended it."""
    verdict: Terminal | None = None
    """How it ends whatever the engine says: it was cancelled, or failed outside the engine."""
    progress_due: float = math.inf
    """When progress may be reported again; never where nobody wants to hear it."""
    marks: MarkLog | None = None
    """What became of it, when somebody wants to hear that."""


@frozen
class _Input:
    """What has come on an edge."""

    edge: EdgeIn
    """The edge."""
    chunk: Chunk
    """The chunk."""
    turn: int
    """That of its request."""
    payload: Payload
    """The payload, borrowed."""
    fault: str | None
    """Why it was refused, if it was."""
    hop: Hop
    """How it came."""


def _turn(chunk: Chunk) -> int:
    """When the replica was told of the request that a chunk is for, or will have been."""
    return chunk.key.epoch if chunk.turn is None else chunk.turn


def _params(submit: Submit) -> Mapping[str, object]:
    """The parameters with tuples for the lists that they became on the wire."""
    return {name: plain(value) for name, value in submit.params.items()}


class StageRequests:
    """All requests of one stage process."""

    def __init__(
        self, inbox: Inbox, num_inputs: int, tell_caller: Callable[[Message], None]
    ) -> None:
        """`num_inputs` is the number of edges that feed a request here."""
        self._inbox = inbox
        self._num_inputs = num_inputs
        self._tell_caller = tell_caller
        self._held: dict[str, _Held] = {}
        self._last_turn = -1
        self._early: dict[Key, list[_Input]] = {}

    def submit(
        self, submit: Submit, outs: Mapping[int, EdgeOut] | None, later: Collection[int] = ()
    ) -> None:
        """Take a request that feeds `outs`, and stages of which it is told later.

        `None` says that one of its targets is gone.
        """
        key = submit.key
        turn = key.epoch if submit.turn is None else submit.turn
        self._last_turn = max(self._last_turn, turn)
        if outs is None or key.rid in self._held:
            why = "its next stage is gone" if outs is None else "it is already running here"
            self._tell_caller(Failed(key=key, invalid=outs is not None, message=why))
        else:
            marks = None if submit.trace is None else MarkLog(key)
            self._held[key.rid] = _Held(
                key=key,
                outs=dict(outs),
                open_inputs=self._num_inputs,
                progress_due=0.0 if submit.progress else math.inf,
                marks=marks,
            )
            for target, out in outs.items():
                if target == CALLER:
                    out.open(key, submit.window)
                else:
                    out.open(key, turn=submit.turns.get(target))
            now, targets = time.monotonic(), (*outs, *later)
            session = submit.session
            self._inbox.put(
                Add(key=key, params=_params(submit), targets=targets, since=now, session=session)
            )
        for early in [early for early, given in self._early.items() if given[0].turn <= turn]:
            for given in self._early.pop(early):  # one before this turn is never submitted here
                self._give(early, given)

    def targets(self, told: Targets, outs: Mapping[int, EdgeOut] | None) -> None:
        """Further edges that a request feeds are known; what is whole of it goes there.

        `None` says that one of these replicas is gone.
        """
        held = self._find(told.key)
        if held is None or held.verdict is not None:
            return
        if outs is None:
            self._fail(held, "its next stage is gone")
            return
        for target, out in outs.items():
            out.open(told.key, turn=told.turn)
            held.outs[target] = out
        unsent, held.unsent = held.unsent, []
        for said in unsent:
            self._said(said)
        self._close_sent(held)

    def cancel(self, key: Key) -> None:
        """Forget a request; unknown ones have said their terminal word already."""
        held = self._find(key)
        if held is not None:
            self._condemn(held, Cancelled(key=key))

    def cancel_all(self) -> None:
        """Forget every request: the caller is gone."""
        for held in list(self._held.values()):
            self._condemn(held, Cancelled(key=held.key))
        for key in list(self._early):
            for given in self._early.pop(key):
                self._give(key, given)

    def chunk(self, edge: EdgeIn, chunk: Chunk, attached: Attached) -> None:
        """Give an input to the engine.

        It may come before its request, on another stream: turns ascend, so a higher one is still
        to come, and any other unknown one is gone. It is taken at once all the same, because later
        tickets of other requests build on what comes with it.
        """
        key = chunk.key
        turn = _turn(chunk)
        is_early = turn > self._last_turn
        if not is_early and self._open(key) is None:
            edge.discard(chunk, attached)
            return
        payload, fault = Payload(), None
        try:
            payload = edge.take(chunk, attached)
        except ValueError as error:
            fault = f"an input was refused: {error}"
        hop = hop_of(edge.source, chunk, payload.num_bytes)
        given = _Input(edge=edge, chunk=chunk, turn=turn, payload=payload, fault=fault, hop=hop)
        if is_early:
            self._early.setdefault(key, []).append(given)
        else:
            self._give(key, given)

    def take(self, emissions: Sequence[Emission]) -> None:
        """Carry out what the engine thread has handed over."""
        for emission in emissions:
            match emission:
                case Said():
                    self._said(emission)
                case Counted():
                    self._counted(emission)
                case Over():
                    self._over(emission.terminal)
                case _:
                    self._tell_caller(emission)

    def sent(self, key: Key, error: ValueError | None) -> None:
        """A chunk that had to wait has gone, or was refused."""
        held = self._find(key)
        if held is None or held.verdict is not None:
            return
        held.waiting -= 1
        if error is not None:
            self._fail(held, f"an output was refused: {error}")
        elif held.waiting == 0 and held.engine_said is None:
            self._resume(held)
        else:
            self._close_sent(held)

    def _resume(self, held: _Held) -> None:
        self._inbox.put(Resume(key=held.key))
        kept, held.kept = held.kept, []
        for append in kept:
            self._inbox.put(append)

    def _find(self, key: Key) -> _Held | None:
        held = self._held.get(key.rid)
        return held if held is not None and held.key == key else None

    def _open(self, key: Key) -> _Held | None:
        """The request of that key, if it still takes inputs."""
        held = self._find(key)
        is_open = held is not None and held.verdict is None and held.engine_said is None
        return held if is_open else None

    def _give(self, key: Key, given: _Input) -> None:
        """Hand an input to the engine, or back when nobody wants it any more."""
        held = self._open(key)
        if held is None:
            given.payload.release()
            given.edge.drop(key)
            return
        if given.edge not in held.ins:
            held.ins.append(given.edge)
        if held.marks is not None:
            held.marks.taken(given.hop)
        if given.fault is not None:
            self._fail(held, given.fault)
            return
        payload = given.payload
        held.open_inputs -= given.chunk.last
        last = held.open_inputs == 0
        if not (last or payload.meta or payload.buffers):
            payload.release()  # only said that this edge is done, others are not
        elif held.waiting:
            payload = given.edge.keep(given.chunk, payload)
            held.kept.append(Append(key=key, payload=payload, last=last))
        else:
            keep = partial(given.edge.keep, given.chunk, payload)
            self._inbox.put(Append(key=key, payload=payload, last=last, keep=keep))

    def _said(self, said: Said) -> None:
        held = self._find(said.key)
        if held is None or held.verdict is not None:
            return
        out = held.outs.get(said.target)
        if out is None:
            if not held.unsent:
                self._tell_caller(Whole(key=held.key))
            held.unsent.append(said)
            return
        try:
            gone = out.send(said.key, said.payload, last=said.last)
        except ValueError as error:
            self._fail(held, f"an output was refused: {error}")
            return
        if not gone:
            held.waiting += 1
            if held.waiting == 1:
                self._inbox.put(Pause(key=said.key))

    def _counted(self, counted: Counted) -> None:
        held = self._find(counted.key)
        now = time.monotonic()
        if held is not None and held.verdict is None and now >= held.progress_due:
            held.progress_due = now + _PROGRESS_S
            self._tell_caller(Progress(key=held.key, units=dict(counted.units)))

    def _over(self, terminal: Terminal) -> None:
        held = self._find(terminal.key)
        if held is None:
            return
        held.engine_said = terminal
        if held.marks is not None:
            held.marks.over()
        if held.verdict is not None:
            self._close(held, held.verdict)
        elif isinstance(terminal, Failed):
            self._close(held, terminal)
        else:
            self._close_sent(held)

    def _close_sent(self, held: _Held) -> None:
        """A request is done once the engine is done with it and all of it was sent."""
        if held.verdict is None and held.engine_said and not (held.waiting or held.unsent):
            self._close(held, held.engine_said)

    def _fail(self, held: _Held, message: str) -> None:
        self._condemn(held, Failed(key=held.key, invalid=False, message=wire_text(message)))

    def _condemn(self, held: _Held, verdict: Terminal) -> None:
        if held.verdict is not None:
            return
        held.verdict = verdict
        self._drop(held)
        if held.engine_said is not None:
            self._close(held, verdict)
        else:
            self._inbox.put(Forget(key=held.key))  # closed when the engine has let go

    def _close(self, held: _Held, terminal: Terminal) -> None:
        self._drop(held)
        del self._held[held.key.rid]
        if held.marks is not None:
            self._tell_caller(held.marks.closed())
        # what has finished here can no longer be failed by the death of this process
        outs = list(held.outs.values()) if isinstance(terminal, Finished) else []
        _after_all(outs, partial(self._tell_caller, terminal))

    def _drop(self, held: _Held) -> None:
        held.kept.clear()
        held.unsent.clear()
        for edge_out in held.outs.values():
            edge_out.drop(held.key)
        for edge_in in held.ins:
            edge_in.drop(held.key)


def _after_all(outs: Sequence[EdgeOut], then: Callable[[], None]) -> None:
    """Call `then` once all that these have sent has left this process."""
    left = len(outs)

    def written() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            then()

    for out in outs:
        out.when_written(written)
    if not outs:
        then()
