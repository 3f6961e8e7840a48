"""The I/O thread of a further rank: its stream to the supervisor, and nothing else.

Commands come on a feed of their own, straight to the engine's thread.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import Future
from typing import Final, NoReturn

from stagemesh.plan.save import from_json
from stagemesh.plan.values import Plan
from stagemesh.runtime.messages import (
    PROTOCOL,
    Attached,
    Fatal,
    Feed,
    Meeting,
    Message,
    Ping,
    Pong,
    ProtocolError,
    Setup,
    wire_text,
)
from stagemesh.runtime.own_end import crash, end_group
from stagemesh.runtime.ranks.feed import FeedReader
from stagemesh.runtime.stream import Stream
from stagemesh.runtime.transport.tls import secured_feed
from stagemesh.spec.engine import Rendezvous
from stagemesh.spec.frozen import frozen

_STOP_S: Final = 2.0
"""How long the stream may take to close; the process exits then in any case."""


@frozen
class RankAssignment:
    """What the supervisor wants this process to be."""

    plan: Plan
    """The whole plan."""
    setup: Setup
    """Which stage, replica and rank."""
    rendezvous: Rendezvous
    """Where the ranks meet."""
    feed: FeedReader
    """Where commands come from."""


class RankIO:
    """Owns the control stream of a rank. Public methods are for the engine's thread."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over `sock`, the control stream to the supervisor."""
        self._sock = sock
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="stagemesh-io", daemon=True)
        self._assignment: Future[RankAssignment] = Future()
        self._setup: Setup | None = None
        self._meeting: Meeting | None = None
        self._feed: FeedReader | None = None

    def start(self) -> RankAssignment:
        """Start the thread and wait for the supervisor to say what this process is."""
        self._thread.start()
        return self._assignment.result()

    def stop(self, fatal: str | None = None) -> None:
        """Say why, when it is a failure, close the stream, and end the thread."""
        self._loop.call_soon_threadsafe(self._close, fatal)
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        self._loop.set_exception_handler(crash)
        self._loop.call_soon(self._begin)
        self._loop.run_forever()
        self._loop.close()

    def _begin(self) -> None:
        self._control = Stream(self._sock, self._on_control, self._die)

    def _close(self, fatal: str | None) -> None:
        if fatal is not None:
            self._control.send(Fatal(reason=wire_text(fatal)))
        self._control.close()
        self._loop.stop()

    def _on_control(self, message: Message, attached: Attached) -> None:
        match message:
            case Setup(protocol=protocol) if protocol != PROTOCOL:
                raise ProtocolError(f"protocol `{protocol}` is not `{PROTOCOL}`")
            case Setup():
                self._setup = message
            case Meeting() if not attached.fds:
                self._meeting = message
            case Feed():
                (fd,) = attached.fds
                self._assign(socket.socket(fileno=fd))
            case Ping(number=number):
                away_s = 0.0 if self._feed is None else self._feed.away_s
                self._control.send(Pong(number=number, step_s=away_s))
            case _:
                attached.close()
                raise ProtocolError(f"the supervisor does not say `{type(message).__name__}`")

    def _assign(self, sock: socket.socket) -> None:
        if self._setup is None or self._meeting is None:
            raise ProtocolError("a feed came before it was said what for")
        plan = from_json(self._setup.plan)
        if not isinstance(plan, Plan):
            raise ProtocolError(f"the plan cannot be read: {plan[0]}")
        feed = FeedReader(secured_feed(sock, plan.launch, is_acceptor=False))
        self._feed = feed
        meeting = Rendezvous(address=self._meeting.address, port=self._meeting.port)
        assignment = RankAssignment(plan=plan, setup=self._setup, rendezvous=meeting, feed=feed)
        self._assignment.set_result(assignment)

    def _die(self, reason: str | None) -> NoReturn:
        """End this process and what it started, saying why if there is somebody to hear it."""
        if reason is not None:
            self._control.send(Fatal(reason=wire_text(reason)))
        end_group()
