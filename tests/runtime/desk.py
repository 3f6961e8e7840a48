"""A `StageRequests` between streams that only write down, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from stagemesh.connectors.shared_memory import CONNECTOR, SharedMemoryOptions
from stagemesh.runtime.edge import Connector, EdgeIn
from stagemesh.runtime.edge_out import EdgeOut
from stagemesh.runtime.inbox import Command, Inbox
from stagemesh.runtime.messages import (
    Attached,
    Cancelled,
    Chunk,
    Finished,
    Key,
    Message,
    Submit,
    Terminal,
)
from stagemesh.runtime.stage_loop import Over, Said
from stagemesh.runtime.stage_requests import StageRequests
from stagemesh.runtime.stream import Stream
from stagemesh.spec.payload import Payload
from stagemesh.testing.connector_conformance import payload_of

KEY = Key(rid="r", epoch=5)
SIZE = 30_000
ROOM = 4
"""Payloads of `SIZE` that fit the arena of these tests."""


class Recorder:
    """Stands for a stream: writes down what is sent."""

    is_near = True

    def __init__(self) -> None:
        """Nothing was sent."""
        self.sent: list[tuple[Message, Attached]] = []
        self.is_slow = False
        self.waits: list[Callable[[], None]] = []

    def send(
        self, message: Message, fds: tuple[int, ...] = (), bulk: Sequence[memoryview] = ()
    ) -> None:
        """Write down."""
        self.sent.append((message, Attached(fds=fds, bulk=tuple(bulk))))

    def soon(self, say: Callable[[], None]) -> None:
        """Nothing is held back."""
        say()

    def when_written(self, then: Callable[[], None]) -> None:
        """Everything is written at once, unless it is slow."""
        if self.is_slow:
            self.waits.append(then)
        else:
            then()

    def chunks(self) -> list[Chunk]:
        """The chunks among what was sent."""
        return [message for message, _ in self.sent if isinstance(message, Chunk)]


class Desk:
    """A `StageRequests` with one edge in and one out, and everything it says."""

    def __init__(self, num_inputs: int = 1) -> None:
        """Connect it; needs a running loop."""
        self.inbox = Inbox()
        self.told: list[Message] = []
        self.requests = StageRequests(self.inbox, num_inputs, self.told.append)
        self.downstream, self.upstream, self.answers = Recorder(), Recorder(), Recorder()
        small = SharedMemoryOptions(arena_bytes=128 * 1024)
        self.connector = Connector(spec=CONNECTOR, options=small)
        self.out = EdgeOut(self._as_stream(self.downstream), self.connector.sender(), self.sent)
        self.source = EdgeOut(self._as_stream(self.upstream), self.connector.sender(), self.ignore)
        self.into = EdgeIn(self._as_stream(self.answers), self.connector)

    def submit(self, key: Key = KEY, *, progress: bool = False) -> None:
        """A request comes."""
        params: dict[str, object] = {"n": [1]}
        submit = Submit(key=key, params=params, targets={1: (0, 0)}, progress=progress)
        self.requests.submit(submit, {1: self.out})

    def feed(self, payload: Payload, key: Key = KEY, *, last: bool = False) -> None:
        """An input comes from upstream."""
        assert self.source.send(key, payload, last=last)
        message, attached = self.upstream.sent.pop()
        assert isinstance(message, Chunk)
        self.requests.chunk(self.into, message, attached)

    def say(self, *, last: bool = False, key: Key = KEY) -> None:
        """The engine says something."""
        said = Said(key=key, target=1, payload=payload_of(SIZE), last=last)
        self.requests.take([said])

    def over(self, terminal: Terminal) -> None:
        """The engine is done."""
        self.requests.take([Over(terminal=terminal)])

    def cancel_and_close(self, key: Key = KEY) -> None:
        """A request is cancelled, and the engine has let go of it."""
        self.requests.cancel(key)
        self.over(Cancelled(key=key))

    def commands(self) -> list[Command]:
        """What the engine was asked since the last call."""
        return list(self.inbox.take(wait=False))

    def sent(self, key: Key, error: ValueError | None) -> None:
        """A waiting chunk has gone."""
        self.requests.sent(key, error)

    def ignore(self, key: Key, error: ValueError | None) -> None:
        """Nothing waits on the other side of these tests."""

    def close(self) -> None:
        """Close all ends, and the descriptors that nobody took."""
        for edge in (self.out, self.source, self.into):
            edge.close()
        for recorder in (self.downstream, self.upstream):
            for _, attached in recorder.sent:
                attached.close()

    @staticmethod
    def _as_stream(recorder: Recorder) -> Stream:
        return cast("Stream", recorder)


def finished(key: Key = KEY) -> Finished:
    """How an engine ends a request well."""
    return Finished(key=key, units={}, seconds=0.0, first_output_s=None)


def a_desk(num_inputs: int = 1) -> Iterator[Desk]:
    """Make a desk on a loop that does not run any further."""

    async def make() -> Desk:
        return Desk(num_inputs)

    with asyncio.Runner() as runner:
        desk = runner.run(make())
        yield desk
        desk.close()
