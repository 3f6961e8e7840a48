"""The requests of a stage process, as its I/O thread sees them.

It stands between streams and engine thread: chunks in, chunks out, pausing what finds no room, and
one terminal word to the caller for every request, after everything that it had to say.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from stagemesh.plan.plain import plain
from stagemesh.runtime.edge import EdgeIn, EdgeOut
from stagemesh.runtime.inbox import Add, Append, Forget, Inbox, Pause, Resume
from stagemesh.runtime.messages import (
    Cancelled,
    Chunk,
    Failed,
    Key,
    Message,
    Progress,
    Submit,
    Terminal,
)
from stagemesh.runtime.stage_loop import Counted, Emission, Over, Said

_PROGRESS_S: Final = 0.1
"""Shortest time between two reports of progress of one request."""


@dataclass(eq=False, slots=True, kw_only=True)
class _Held:
    """A request of this process."""

    key: Key
    outs: Mapping[int, EdgeOut]
    """Edges that it feeds, by stage id."""
    open_inputs: int
    """Incoming edges that have not said their last."""
    ins: list[EdgeIn] = field(default_factory=list)
    """Edges that have fed it."""
    waiting: int = 0
    """Chunks that wait for room."""
    engine_said: Terminal | None = None
    """How the engine ended it."""
    verdict: Terminal | None = None
    """How it ends whatever the engine says: it was cancelled, or failed outside the engine."""
    progress_due: float = 0.0
    """When progress may be reported again."""


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
        self._last_epoch = -1
        self._early: dict[Key, list[tuple[EdgeIn, Chunk, tuple[int, ...]]]] = {}

    def submit(self, submit: Submit, outs: Mapping[int, EdgeOut] | None) -> None:
        """Take a request that feeds `outs`; `None` says that one of its targets is gone."""
        key = submit.key
        self._last_epoch = max(self._last_epoch, key.epoch)
        if outs is None or key.rid in self._held:
            why = "its next stage is gone" if outs is None else "it is already running here"
            self._tell_caller(Failed(key=key, invalid=outs is not None, message=why))
        else:
            self._held[key.rid] = _Held(key=key, outs=outs, open_inputs=self._num_inputs)
            now = time.monotonic()
            self._inbox.put(Add(key=key, params=_params(submit), targets=tuple(outs), since=now))
        for edge, chunk, fds in self._early.pop(key, []):
            self.chunk(edge, chunk, fds)

    def cancel(self, key: Key) -> None:
        """Forget a request; unknown ones have said their terminal word already."""
        held = self._find(key)
        if held is not None:
            self._condemn(held, Cancelled(key=key))

    def cancel_all(self) -> None:
        """Forget every request: the caller is gone."""
        for held in list(self._held.values()):
            self._condemn(held, Cancelled(key=held.key))

    def chunk(self, edge: EdgeIn, chunk: Chunk, fds: tuple[int, ...]) -> None:
        """Give an input to the engine.

        It may come before its request, on another stream: epochs ascend, so a higher one is still
        to come, and any other unknown one is gone.
        """
        held = self._find(chunk.key)
        if held is None and chunk.key.epoch > self._last_epoch:
            self._early.setdefault(chunk.key, []).append((edge, chunk, fds))
            return
        if held is None or held.verdict is not None or held.engine_said is not None:
            edge.discard(chunk, fds)
            return
        try:
            payload = edge.take(chunk, fds)
        except ValueError as error:
            self._fail(held, f"an input was refused: {error}")
            return
        if edge not in held.ins:
            held.ins.append(edge)
        held.open_inputs -= chunk.last
        last = held.open_inputs == 0
        if not (last or payload.meta or payload.buffers):
            payload.release()  # only said that this edge is done, others are not
            return
        self._inbox.put(Append(key=held.key, payload=payload, last=last))

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

    def sent(self, key: Key, error: ValueError | None) -> None:
        """A chunk that had to wait has gone, or was refused."""
        held = self._find(key)
        if held is None or held.verdict is not None:
            return
        held.waiting -= 1
        if error is not None:
            self._fail(held, f"an output was refused: {error}")
        elif held.waiting == 0:
            if held.engine_said is not None:
                self._close(held, held.engine_said)
            else:
                self._inbox.put(Resume(key=key))

    def close(self) -> None:
        """Close the descriptors of chunks whose request never came."""
        for chunks in self._early.values():
            for _, _, fds in chunks:
                for fd in fds:
                    os.close(fd)
        self._early.clear()

    def _find(self, key: Key) -> _Held | None:
        held = self._held.get(key.rid)
        return held if held is not None and held.key == key else None

    def _said(self, said: Said) -> None:
        held = self._find(said.key)
        if held is None or held.verdict is not None:
            return
        try:
            gone = held.outs[said.target].send(said.key, said.payload, last=said.last)
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
        if held.verdict is not None:
            self._close(held, held.verdict)
        elif held.waiting == 0 or isinstance(terminal, Failed):
            self._close(held, terminal)

    def _fail(self, held: _Held, message: str) -> None:
        self._condemn(held, Failed(key=held.key, invalid=False, message=message))

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
        self._tell_caller(terminal)

    def _drop(self, held: _Held) -> None:
        for edge_out in held.outs.values():
            edge_out.drop(held.key)
        for edge_in in held.ins:
            edge_in.drop(held.key)
