"""The engine loop: the main thread of a stage process.

Once per step it takes in what the I/O thread has left in the inbox and hands back what the step
gave. The engine gets an input when its request wants it; until then the input waits here without
credit, so that whoever sends them does not run ahead, and in memory of its own.

A request that goes wrong, in the engine or in a bridge, fails alone. When a whole step raises,
nobody knows whose fault it was: every request of the engine fails, and it goes on empty. With
further ranks it cannot, because they may still wait for one another: that ends the loop. Memory
that has run out twice in a row does not come back by itself: that ends the loop.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, cast

from stagemesh.runtime.checks import payload_flaws
from stagemesh.runtime.inbox import Add, Append, Enter, Exit, Forget, Inbox, Pause, Quit, Resume
from stagemesh.runtime.load import LoopCount
from stagemesh.runtime.messages import (
    Cancelled,
    Failed,
    Finished,
    Key,
    Terminal,
    wire_text,
)
from stagemesh.runtime.request_lines import about
from stagemesh.runtime.session_messages import (
    SessionClosed,
    SessionOpened,
)
from stagemesh.spec.bridge import Bridge, BridgeFactory
from stagemesh.spec.engine import Engine, EngineOutput, EngineRequest, FaultKind, SessionEngine
from stagemesh.spec.frozen import frozen
from stagemesh.spec.payload import Payload


@frozen
class Said:
    """A payload for one target."""

    key: Key
    """The request."""
    target: int
    """A stage id, or `CALLER`."""
    payload: Payload
    """The payload; empty when only the end is to be told."""
    last: bool
    """Whether nothing follows."""


@frozen
class Counted:
    """What was done for a request so far."""

    key: Key
    """The request."""
    units: Mapping[str, float]
    """Amounts by name, all steps together."""


@frozen
class Over:
    """The engine is done with a request."""

    terminal: Terminal
    """How it ended."""


Emission: TypeAlias = Said | Counted | Over | SessionOpened | SessionClosed
"""What the engine thread hands to the I/O thread."""


@frozen
class Target:
    """How a stage feeds one other."""

    bridge: BridgeFactory | None
    """Makes the converter of each request; `None` hands outputs over as they are."""
    together: int | None = 1
    """Outputs whose payloads are handed over together; `None` for all that a request gives here."""


@dataclass(eq=False, slots=True, kw_only=True)
class _Route:
    """The way of one request over one edge."""

    bridge: Bridge | None
    together: int | None
    held: list[Payload] = field(default_factory=list)
    num_outputs: int = 0
    """Outputs since something was handed over."""

    def push(self, payload: Payload, *, last: bool) -> list[Payload]:
        """Take an output; return what goes to the consumer now."""
        if self.bridge is not None:
            self.held += self.bridge.push(payload, last=last)
        elif payload.buffers or payload.meta:
            self.held.append(payload)
        self.num_outputs += 1
        if not last and (self.together is None or self.num_outputs < self.together):
            return []
        ready, self.held, self.num_outputs = self.held, [], 0
        return ready


@dataclass(eq=False, slots=True, kw_only=True)
class _Live:
    """A request that the engine holds."""

    key: Key
    since: float
    routes: dict[int, _Route]
    inputs: list[Append] = field(default_factory=list)
    """Those that it does not want yet, in order."""
    started: float | None = None
    first_output_s: float | None = None
    units: dict[str, float] = field(default_factory=dict)


class StageLoop:
    """Drives one engine until it is told to quit."""

    def __init__(
        self,
        engine: Engine,
        targets: Mapping[int, Target],
        inbox: Inbox,
        emit: Callable[[Sequence[Emission]], None],
        *,
        recovers: bool = True,
        count: LoopCount | None = None,
    ) -> None:
        """`targets` may hold `CALLER`; `emit` is called on this thread, once per turn at most.

        `recovers` says whether the engine can go on after a step that raised. What is done is
        counted in `count`.
        """
        self._count = LoopCount() if count is None else count
        self._engine = engine
        self._targets = targets
        self._inbox = inbox
        self._emit = emit
        self._live: dict[str, _Live] = {}
        self._behind: dict[str, _Live] = {}
        """Requests with inputs that they do not want yet."""
        self._emissions: list[Emission] = []
        self._recovers = recovers
        self._ran_out = False

    def run(self) -> None:
        """Work until `Quit`; raises what the engine raised when it is beyond repair."""
        while self.turn():
            pass

    def turn(self) -> bool:
        """Take in what has come, make one step, hand over; `False` after `Quit`."""
        for command in self._inbox.take(wait=not self._engine.has_work()):
            if isinstance(command, Quit):
                return False
            self._apply(command)
        if self._engine.has_work():
            self._step()
        for live in list(self._behind.values()):
            self._guard(live.key, partial(self._catch_up, live))
        if self._emissions:
            emissions, self._emissions = self._emissions, []
            self._emit(emissions)
        return True

    def _apply(self, command: Add | Append | Pause | Resume | Forget | Enter | Exit) -> None:
        if isinstance(command, Add):
            self._guard(command.key, partial(self._add, command))
            return
        if isinstance(command, Enter | Exit):
            self._emissions.append(_session(cast("SessionEngine", self._engine), command))
            return
        live = self._live.get(command.key.rid)
        if live is None or live.key != command.key:
            if isinstance(command, Append):
                command.payload.release()
            return
        rid = command.key.rid
        match command:
            case Append():
                if live.started is None:
                    live.started = time.monotonic()
                    self._count.started += 1
                self._guard(command.key, partial(self._take, live, command))
            case Pause():
                self._engine.pause(rid)
            case Resume():
                self._engine.resume(rid)
            case Forget():
                self._drop(live, Cancelled(key=live.key))

    def _add(self, add: Add) -> None:
        routes = {}
        for target in add.targets:
            declared = self._targets[target]
            bridge = None if declared.bridge is None else declared.bridge()
            routes[target] = _Route(bridge=bridge, together=declared.together)
        self._live[add.key.rid] = _Live(key=add.key, since=add.since, routes=routes)
        self._count.added += 1
        request = EngineRequest(request_id=add.key.rid, params=add.params, session=add.session)
        self._engine.add(request)

    def _take(self, live: _Live, append: Append) -> None:
        rid = live.key.rid
        if live.inputs or not self._engine.wants_input(rid):
            live.inputs.append(append)
            self._behind[rid] = live
        else:
            self._append(append)

    def _catch_up(self, live: _Live) -> None:
        """Give a request what has come meanwhile, if it wants that; else free the edge of it."""
        if not self._engine.wants_input(live.key.rid):
            live.inputs[:] = [append.kept() for append in live.inputs]
            return
        del self._behind[live.key.rid]
        while live.inputs:
            self._append(live.inputs.pop(0))

    def _append(self, append: Append) -> None:
        try:
            self._engine.append(append.key.rid, append.payload, last=append.last)
        except BaseException:
            append.payload.release()
            raise

    def _step(self) -> None:
        began = time.monotonic()
        try:
            outputs = self._engine.step()
        except Exception as error:
            if not self._live or not self._recovers:
                raise  # nobody to blame but the engine itself, or nothing to go on with
            self._check_memory(error)
            _print_exc()
            for live in list(self._live.values()):
                _print(about(live.key.rid, f"failed with that: {type(error).__name__}: {error}"))
                self._drop(live, _failure(live.key, error))
            return
        self._count.steps.add(time.monotonic() - began)
        self._ran_out = False
        for output in outputs:
            live_now = self._live.get(output.request_id)
            if live_now is not None:
                self._guard(live_now.key, partial(self._output, live_now, output))

    def _check_memory(self, error: Exception) -> None:
        """Remember that a step had no memory; raises when the one before had none either."""
        ran_out, self._ran_out = self._ran_out, is_out_of_memory(error)
        if ran_out and self._ran_out:
            raise RuntimeError(f"out of memory in two steps in a row: {error}") from error

    def _guard(self, key: Key, work: Callable[[], None]) -> None:
        """Do something for one request; whatever it raises fails that request alone."""
        try:
            work()
        except Exception as error:  # noqa: BLE001  the edge of a request: engines and bridges are foreign code
            _print_exc(key.rid)
            live = self._live.get(key.rid)
            if live is not None:
                self._drop(live, _failure(key, error))
            else:
                self._emissions.append(Over(terminal=_failure(key, error)))

    def _output(self, live: _Live, output: EngineOutput) -> None:
        if output.error is not None:
            invalid = output.error.kind is FaultKind.INVALID_REQUEST
            told = wire_text(output.error.message)
            self._over(live, Failed(key=live.key, invalid=invalid, message=told))
            return
        if live.first_output_s is None and output.payloads:
            live.first_output_s = time.monotonic() - live.since
            self._count.first_outputs.add(live.first_output_s)
        self._count.outputs += len(output.payloads)
        for name, amount in output.units.items():
            live.units[name] = live.units.get(name, 0.0) + amount
        finished = output.finish is not None
        payloads = output.payloads or ((Payload(),) if finished else ())
        for payload in payloads:
            self._hand_over(live, payload, last=finished and payload is payloads[-1])
        if not finished:
            self._emissions.append(Counted(key=live.key, units=dict(live.units)))
            return
        now = time.monotonic()
        self._over(
            live,
            Finished(
                key=live.key,
                units=dict(live.units),
                seconds=now - (live.started or now),
                first_output_s=live.first_output_s,
            ),
        )

    def _hand_over(self, live: _Live, payload: Payload, *, last: bool) -> None:
        for target, route in live.routes.items():
            ready = route.push(payload, last=last)
            if last and not ready:
                ready = [Payload()]
            for number, item in enumerate(ready, start=1):
                if (flaw := next(payload_flaws(item), None)) is not None:
                    raise TypeError(f"an output is malformed: {flaw}")
                ends = last and number == len(ready)
                said = Said(key=live.key, target=target, payload=item, last=ends)
                self._emissions.append(said)

    def _drop(self, live: _Live, terminal: Terminal) -> None:
        self._engine.cancel(live.key.rid)
        self._over(live, terminal)

    def _over(self, live: _Live, terminal: Terminal) -> None:
        del self._live[live.key.rid]
        self._behind.pop(live.key.rid, None)
        for append in live.inputs:
            append.payload.release()
        self._count.over += 1
        self._count.over_started += live.started is not None
        self._emissions.append(Over(terminal=terminal))


def _session(engine: SessionEngine, command: Enter | Exit) -> SessionOpened | SessionClosed:
    """Open or close a session; the plan has seen to it that the engine keeps some."""
    name, fault = command.session, None
    work = engine.open_session if isinstance(command, Enter) else engine.close_session
    try:
        work(name)
    except Exception as error:  # noqa: BLE001  the edge of a session: engines are foreign code
        _print_exc()
        fault = wire_text(f"{type(error).__name__}: {error}")
    answer = SessionOpened if isinstance(command, Enter) else SessionClosed
    return answer(session=name, fault=fault)


def _print_exc(request: str | None = None) -> None:
    text = traceback.format_exc()
    _print(text if request is None else about(request, text))


def _print(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads, or the disk is full: no reason to end
        sys.stderr.write(text)


def is_out_of_memory(error: Exception) -> bool:
    """Whether an engine has run out of memory, of the host or of a device.

    Told without importing torch, which not every engine uses: its own exception is known by its
    name, and its allocator for the host raises a plain `RuntimeError` that names itself.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return bool(kinds & {"MemoryError", "OutOfMemoryError"}) or "DefaultCPUAllocator" in str(error)


def _failure(key: Key, error: Exception) -> Failed:
    told = wire_text(f"{type(error).__name__}: {error}")
    return Failed(key=key, invalid=False, message=told)
