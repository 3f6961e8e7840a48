"""The `fake` engine on one rank: counts steps, computes nothing, needs nothing but Python.

An echo gives back the text and the buffers of its input. A programmed output `i` has the text of
all inputs followed by `#i`, and `output_bytes` bytes of the value `i` in the buffer `data`. The
last output carries the finish. Requests are served in the order they came, `max_num_seqs` in a
step.

A session keeps what it was told: `turn` in the metadata of an output is the number of its turn,
and a programmed output begins with the text of all turns that have finished.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final

from stagemesh.engines._params import typed_params
from stagemesh.engines.fake import FakeOptions, FakeParams
from stagemesh.spec.engine import (
    EngineContext,
    EngineFault,
    EngineOutput,
    EngineRequest,
    FaultKind,
    Finish,
)
from stagemesh.spec.payload import Buffer, MetaValue, Payload

EXIT_CODE: Final = 3
"""Exit code of a process that the program ends."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Session:
    """An open session."""

    turns: int = 0
    heard: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class _Request:
    """A live request; changes as it goes."""

    program: FakeOptions
    session: _Session | None = None
    turn: int = 0
    text: str = ""
    echoes: deque[Payload] = field(default_factory=deque)
    complete: bool = False
    paused: bool = False
    given: int = 0
    waited: int = 0
    fault: EngineFault | None = None

    def reached(self, point: str) -> None:
        """End the process if the program says so."""
        if self.program.kill_at == point:
            _killed()

    def can_go_on(self) -> bool:
        if self.paused:
            return False
        if self.fault is not None:
            return True
        if self.program.fail_at == "stall" and self.given >= self.program.fail_step:
            return False
        return bool(self.echoes) if self.program.num_outputs is None else self.complete


class FakeEngine:
    """See the module; `call` takes `echo`, which returns its arguments."""

    def __init__(self, context: EngineContext) -> None:
        """Take the program of `context.args`."""
        assert isinstance(context.args, FakeOptions)
        self._rank = context.rank
        self._options = _at(self._rank, context.args)
        self._reached("construct")
        self._requests: dict[str, _Request] = {}
        self._sessions: dict[str, _Session] = {}
        self._most_sessions = context.max_sessions
        self._fails_to_close = self._options.fail_at == "close_session"

    def load(self) -> None:
        """Raise `RuntimeError`, or do not come back, when the program says so."""
        self._reached("load")
        if self._options.fail_at == "load":
            raise RuntimeError("the program fails at `load`")
        if self._options.fail_at == "load_hang":
            _hang()
        self._reached("loaded")

    def add(self, request: EngineRequest) -> None:
        """Take a request with its own program over the stage's."""
        assert request.request_id not in self._requests, "request ids are unique"
        state = _Request(program=self._options)
        self._requests[request.request_id] = state
        if request.session is not None:
            session = state.session = self._sessions[request.session]
            session.turns += 1
            state.turn = session.turns
        try:
            state.program = _at(self._rank, _program(self._options, request.params))
        except ValueError as error:
            state.fault = EngineFault(kind=FaultKind.INVALID_REQUEST, message=str(error))
            return
        state.reached("add")
        if state.program.fail_at == "add":
            state.fault = _failure("add", FaultKind.INVALID_REQUEST)

    def append(self, request_id: str, payload: Payload, *, last: bool) -> None:
        """Copy one input."""
        state = self._requests.get(request_id)
        if state is not None and state.fault is None:
            state.reached("append")
            if state.program.fail_at == "append":
                state.fault = _failure("append", FaultKind.INVALID_REQUEST)
            text = payload.meta.get("text")
            state.text += text if isinstance(text, str) else ""
            state.complete = last
            if state.program.num_outputs is None:
                state.echoes.append(payload.copied())
        payload.release()

    def wants_input(self, request_id: str) -> bool:
        """Whether everything was echoed; a programmed output takes the text of all inputs."""
        state = self._requests.get(request_id)
        return state is None or state.fault is not None or not state.echoes

    def step(self) -> list[EngineOutput]:
        """Serve the oldest requests that can go on."""
        ready = [name for name, state in self._requests.items() if state.can_go_on()]
        if ready and self._options.step_s:
            time.sleep(self._options.step_s)
        found = (self._serve(name) for name in ready[: self._options.max_num_seqs])
        return [output for output in found if output is not None]

    def pause(self, request_id: str) -> None:
        """Hold a request back."""
        if request_id in self._requests:
            self._requests[request_id].reached("pause")
            self._requests[request_id].paused = True

    def resume(self, request_id: str) -> None:
        """Let a request go on."""
        if request_id in self._requests:
            self._requests[request_id].reached("resume")
            self._requests[request_id].paused = False

    def cancel(self, request_id: str) -> None:
        """Forget a request."""
        state = self._requests.pop(request_id, None)
        if state is not None:
            state.reached("cancel")

    def open_session(self, session: str) -> None:
        """Remember a session; raise `RuntimeError` for more than were to come."""
        self._reached("open_session")
        if self._options.fail_at == "open_session":
            raise RuntimeError("the program fails at `open_session`")
        if len(self._sessions) >= self._most_sessions:
            raise RuntimeError(f"more than `{self._most_sessions}` sessions were opened")
        self._sessions[session] = _Session()

    def close_session(self, session: str) -> None:
        """Forget a session; raise `RuntimeError` once when the program says so."""
        self._reached("close_session")
        if self._fails_to_close:
            self._fails_to_close = False
            raise RuntimeError("the program fails at `close_session`")
        self._sessions.pop(session, None)

    def call(self, name: str, args: Mapping[str, MetaValue]) -> Mapping[str, MetaValue]:
        """Return `args` for `echo`; raise `KeyError` for any other name."""
        if name != "echo":
            raise KeyError(name)
        return dict(args)

    def has_work(self) -> bool:
        """Whether some request can go on."""
        return any(state.can_go_on() for state in self._requests.values())

    def close(self) -> None:
        """Forget everything."""
        self._reached("close")
        self._requests.clear()
        self._sessions.clear()
        self._reached("closed")

    def _reached(self, point: str) -> None:
        """End the process if the program of the stage says so."""
        if self._options.kill_at == point:
            _killed()

    def _serve(self, request_id: str) -> EngineOutput | None:
        state = self._requests[request_id]
        program = state.program
        if state.fault is None and state.waited < program.delay_steps:
            state.waited += 1
            return None
        if state.fault is None and state.given >= program.fail_step:
            _strike(state)
        if state.fault is not None:
            del self._requests[request_id]
            return EngineOutput(request_id=request_id, error=state.fault)
        payloads = _next_output(state)
        state.given += len(payloads)
        state.waited = 0
        wanted = program.num_outputs
        done = not state.echoes if wanted is None else state.given >= wanted
        if not (state.complete and done):
            return EngineOutput(request_id=request_id, payloads=payloads, units={"outputs": 1})
        state.reached("finish")
        if state.session is not None:
            state.session.heard += state.text
        del self._requests[request_id]
        units = {"outputs": float(len(payloads))}
        return EngineOutput(
            request_id=request_id, payloads=payloads, finish=Finish.STOP, units=units
        )


def _at(rank: int, program: FakeOptions) -> FakeOptions:
    """The program as it is for one rank."""
    if program.at_rank in (None, rank):
        return program
    return replace(program, fail_at=None, kill_at=None)


def _program(options: FakeOptions, params: Mapping[str, object]) -> FakeOptions:
    own = typed_params(FakeParams, params)
    given = {item.name: getattr(own, item.name) for item in fields(own)}
    return replace(options, **{name: value for name, value in given.items() if value is not None})


def _strike(state: _Request) -> None:
    state.reached("step")
    match state.program.fail_at:
        case "step":
            state.fault = _failure("step", FaultKind.INTERNAL)
        case "raise":
            raise RuntimeError("the program fails at `raise`")
        case "memory":
            raise MemoryError("the program has no memory left")
        case "exit":
            os._exit(EXIT_CODE)
        case "hang":
            _hang()


def _hang() -> None:
    threading.Event().wait()  # for ever, as other threads go on


def _killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _failure(place: str, kind: FaultKind) -> EngineFault:
    return EngineFault(kind=kind, message=f"the program fails at `{place}`")


def _next_output(state: _Request) -> tuple[Payload, ...]:
    if state.program.num_outputs is None:
        echo = state.echoes.popleft()
        return (replace(echo, meta={**echo.meta, **_turn(state)}),)
    if state.given >= state.program.num_outputs:
        return ()
    size = state.program.output_bytes
    data = memoryview(bytes([state.given % 256]) * size)
    buffer = Buffer(name="data", dtype="uint8", shape=(size,), data=data)
    before = "" if state.session is None else state.session.heard
    text = f"{before}{state.text}#{state.given}"
    return (Payload(meta={"text": text, **_turn(state)}, buffers=(buffer,) if size else ()),)


def _turn(state: _Request) -> dict[str, MetaValue]:
    return {} if state.session is None else {"turn": state.turn}
