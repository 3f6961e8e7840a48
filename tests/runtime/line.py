"""Two stages and a user in one thread: real requests, edges and engines, streams moved by hand."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

from stagemesh.connectors.shared_memory import CONNECTOR, SharedMemoryOptions
from stagemesh.engines._fake import FakeEngine
from stagemesh.engines.fake import FakeOptions
from stagemesh.errors import ClosedError
from stagemesh.runtime.arrivals import hand_over
from stagemesh.runtime.core.credits import Limits
from stagemesh.runtime.core.unread import share_of
from stagemesh.runtime.edge import Connector, EdgeIn
from stagemesh.runtime.edge_out import EdgeOut
from stagemesh.runtime.inbox import Inbox, Resume
from stagemesh.runtime.load import CALLER
from stagemesh.runtime.messages import (
    Ack,
    Attached,
    Cancelled,
    Chunk,
    Credit,
    Failed,
    Finished,
    Key,
    Message,
    Submit,
)
from stagemesh.runtime.outputs import OmniOutput
from stagemesh.runtime.running import Call, Running
from stagemesh.runtime.stage_loop import StageLoop, Target
from stagemesh.runtime.stage_requests import StageRequests
from stagemesh.runtime.stream import Stream
from stagemesh.runtime.windowed_engine import WindowedEngine
from stagemesh.spec.engine import Engine
from stagemesh.spec.payload import Payload
from stagemesh.testing.engine_context import engine_context

FIRST, SECOND = 0, 1
_NOBODY: Final = Key(rid="nobody", epoch=0)


class Wire:
    """One direction of a stream: holds what was sent until it is moved."""

    is_near = True

    def __init__(self) -> None:
        """Nothing was sent."""
        self.sent: deque[tuple[Message, Attached]] = deque()
        self.hears: Callable[[Message, Attached], None] = _unheard

    def send(
        self, message: Message, fds: tuple[int, ...] = (), bulk: Sequence[memoryview] = ()
    ) -> None:
        """Hold a message."""
        self.sent.append((message, Attached(fds=fds, bulk=tuple(bulk))))

    def soon(self, say: Callable[[], None]) -> None:
        """Nothing is held back."""
        say()

    def when_written(self, then: Callable[[], None]) -> None:
        """It has been, as soon as it is here."""
        then()

    def move(self) -> bool:
        """Let the next message arrive; `False` when there is none."""
        if not self.sent:
            return False
        self.hears(*self.sent.popleft())
        return True

    @property
    def as_stream(self) -> Stream:
        """What edges send to."""
        return cast("Stream", self)


class Stage:
    """One stage: its engine is stepped by hand."""

    def __init__(
        self,
        number: int,
        options: FakeOptions,
        tell: Callable[[Message], None],
        num_streams: int = 0,
    ) -> None:
        """Connect no edges yet; `num_streams` are served at a time, `0` for all."""
        self.inbox = Inbox()
        engine = FakeEngine(engine_context(args=options))
        self.engine: Engine = WindowedEngine(engine, num_streams) if num_streams else engine
        self.requests = StageRequests(self.inbox, 1, tell)
        target = CALLER if number == SECOND else SECOND
        targets = {target: Target(bridge=None)}
        self._loop = StageLoop(self.engine, targets, self.inbox, self.requests.take)

    def turn(self) -> None:
        """One turn of its engine's thread, which does not sleep."""
        self.inbox.put(Resume(key=_NOBODY))
        self._loop.turn()


class Line:
    """Everything; `unread_bytes` is what may wait for the user of each request."""

    def __init__(
        self,
        num_outputs: int,
        output_bytes: int,
        unread_bytes: int,
        limits: Limits,
        delay_steps: int = 0,
        num_streams: int = 0,
    ) -> None:
        """Needs a running loop; `limits` are those of the edge between the stages.

        The second one takes `delay_steps` more for each output, and serves `num_streams` at a time.
        """
        self.unread_bytes = unread_bytes
        program = FakeOptions(num_outputs=num_outputs, output_bytes=output_bytes)
        self.first = Stage(FIRST, program, partial(self._said, FIRST))
        slow = FakeOptions(delay_steps=delay_steps)
        self.second = Stage(SECOND, slow, partial(self._said, SECOND), num_streams)
        self.wires = [Wire() for _ in range(4)]
        between, back, up, down = self.wires
        connector = Connector(spec=CONNECTOR, options=SharedMemoryOptions())
        self.middle = EdgeOut(
            between.as_stream, connector.sender(), self.first.requests.sent, None, limits
        )
        self.into = EdgeIn(back.as_stream, connector)
        self.last = EdgeOut(up.as_stream, connector.sender(), self.second.requests.sent)
        self.caller = EdgeIn(down.as_stream, connector)
        between.hears, up.hears = self._input, self._output
        back.hears, down.hears = partial(_credit, self.middle), partial(_credit, self.last)
        self.running: dict[Key, Running] = {}
        self.got: dict[Key, list[OmniOutput]] = {}
        self.came: Counter[Key] = Counter()
        """Inputs of the second stage."""
        self.owing: dict[Key, set[int]] = {}
        self.ended: dict[Key, bool] = {}

    def submit(self, rid: str) -> Key:
        """A user asks."""
        key = Key(rid=rid, epoch=len(self.got))
        window = share_of(self.unread_bytes, 1)
        call = Call(request_id=rid, prompt=Payload(meta={"text": "hi"}))
        self.running[key] = Running(call, partial(self.leave, key), self.unread_bytes)
        self.got[key], self.owing[key] = [], {FIRST, SECOND}
        stages = ((self.second, {CALLER: self.last}), (self.first, {SECOND: self.middle}))
        for stage, outs in stages:
            submit = Submit(key=key, params={}, targets={}, window=window)
            stage.requests.submit(submit, outs)
        chunk = Chunk(key=key, seq=0, number=0, body=b"", last=True)
        self.first.requests.chunk(cast("EdgeIn", _Prompt()), chunk, Attached())
        return key

    def read(self, key: Key) -> bool:
        """Let the user read one output, if there is one."""
        reading = self.running[key].__anext__()
        try:
            reading.send(None)
        except StopIteration as got:
            self.got[key].append(got.value)
            return True
        except (StopAsyncIteration, ClosedError):
            return False
        reading.close()
        return False

    def leave(self, key: Key) -> None:
        """The user goes."""
        if key not in self.ended:
            self._end(key, done=False)
            for stage in (self.first, self.second):
                stage.requests.cancel(key)

    def step(self, choice: int) -> bool:
        """Do one of all things that can happen, but for reading."""
        kind = choice % (len(self.wires) + 2)
        if kind < len(self.wires):
            return self.wires[kind].move()
        stage = (self.first, self.second)[kind - len(self.wires)]
        had_work = stage.engine.has_work()
        stage.turn()
        return had_work

    def rest(self) -> None:
        """Go on until nothing happens by itself."""
        quiet = 0
        while quiet < 2:
            quiet = 0 if any(self.step(choice) for choice in range(6)) else quiet + 1

    def close(self) -> None:
        """Close the edges and descriptors that nobody took."""
        for edge in (self.middle, self.last, self.into, self.caller):
            edge.close()
        for wire in self.wires:
            for _, attached in wire.sent:
                attached.close()

    def _input(self, message: Message, attached: Attached) -> None:
        assert isinstance(message, Chunk)
        self.came[message.key] += 1
        self.second.requests.chunk(self.into, message, attached)

    def _output(self, message: Message, attached: Attached) -> None:
        assert isinstance(message, Chunk)
        key = message.key
        if key in self.ended:
            self.caller.discard(message, attached)
            return
        payload = self.caller.own(message, attached)
        output = OmniOutput(
            request_id=key.rid, stage="second", kind="data", payload=payload, final=message.last
        )
        hand_over(output, self.running[key], message, self.caller)

    def _said(self, stage: int, message: Message) -> None:
        if not isinstance(message, Finished | Failed | Cancelled):
            return
        key = message.key
        assert not isinstance(message, Failed), message
        # as the frontend hears it: after the chunks on the same stream
        while stage == SECOND and self.wires[2].move():
            pass
        self.owing[key].discard(stage)
        if not self.owing[key]:
            if key not in self.ended:
                self._end(key, done=True)
            self.caller.drop(key)

    def _end(self, key: Key, *, done: bool) -> None:
        self.ended[key] = done
        self.running[key].end(None if done else ClosedError("it was left"))


class _Prompt:
    """Stands for the edge from the caller."""

    source = CALLER

    def take(self, _chunk: Chunk, _attached: Attached) -> Payload:
        """The prompt."""
        return Payload(meta={"text": "hi"})

    def keep(self, _chunk: Chunk, payload: Payload) -> Payload:
        """It is in memory of its own already."""
        return payload

    def drop(self, _key: Key) -> None:
        """Nothing is held."""


def _credit(edge: EdgeOut, message: Message, _attached: Attached) -> None:
    match message:
        case Ack():
            edge.acknowledged(message.numbers, kept=message.kept)
        case Credit():
            edge.credited(message.key, message.seqs)
        case _:
            raise AssertionError(message)


def _unheard(message: Message, _attached: Attached) -> None:
    raise AssertionError(message)
