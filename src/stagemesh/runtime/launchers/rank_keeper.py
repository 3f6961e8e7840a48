"""A further rank of a replica whose rank 0 is kept elsewhere: its process, and its two streams.

The keeper comes to the door of rank 0's, under the token, and runs the process as it is told there:
the process cannot tell. When the stream to rank 0's keeper ends, so does the process.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from stagemesh.errors import StartupError
from stagemesh.plan.values import Plan, StagePlan
from stagemesh.runtime.child import Child
from stagemesh.runtime.launchers.far_rank import RankLinks
from stagemesh.runtime.launchers.numa import binding, read_numa
from stagemesh.runtime.launchers.remote import gone
from stagemesh.runtime.messages import (
    Attached,
    Fatal,
    Feed,
    Kill,
    Meeting,
    Message,
    Ping,
    Pong,
    ProtocolError,
    Setup,
)
from stagemesh.runtime.pipes import GONE_S
from stagemesh.runtime.process import Incarnation
from stagemesh.runtime.stream import Stream
from stagemesh.runtime.surroundings import Surroundings
from stagemesh.runtime.transport.door import Patience, dial_until, near_name
from stagemesh.runtime.transport.handshake import Hello
from stagemesh.runtime.transport.tls import TlsFiles, secured
from stagemesh.runtime.transport.token import Secret
from stagemesh.spec.frozen import frozen

_DIAL: Final = Patience(absent_s=GONE_S, busy_s=30.0)
"""How long rank 0's keeper may take to be reached, and to expect this one."""
_LEAVE_S: Final = 3.0
"""How long the process may take to end once it has closed its stream."""
_REAP_S: Final = 10.0


@frozen
class RankPlace:
    """What the keeper of one rank has to know."""

    plan: Plan
    """The plan as it is on this host."""
    setup: Setup
    """What the process is told to be."""
    stage: StagePlan
    """Its stage, with the environment of the process."""
    master: tuple[str, int]
    """Where rank 0 is kept."""
    links: RankLinks
    """The streams to there."""
    secret: Secret
    """The token."""
    is_near: bool
    """Whether that is on this host."""


class RankKeeper:
    """Keeps one process. All methods belong to one loop."""

    def __init__(self, place: RankPlace) -> None:
        """Do nothing yet."""
        self._place = place
        self._files = None if place.is_near else TlsFiles.of(place.plan.launch)
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._child: Child | None = None
        self._feed: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Run the process, from its coming to its end; how it ends is told to rank 0's keeper.

        Raises `StartupError` when that cannot be reached or does not take it.
        """
        sock = await self._dial(self._place.links.control)
        sock = secured(sock, self._files, is_acceptor=False)
        self._control = Stream(sock, self._on_rank_0, self._on_rank_0_gone)
        try:
            self._start()
            await self._ended
        finally:
            await self._close()

    def _start(self) -> None:
        setup, stage = self._place.setup, self._place.stage
        who = Incarnation(stage=stage.name, replica=setup.replica, rank=setup.rank)
        numa = read_numa(self._place.plan.devices)
        around = Surroundings(
            variables=stage.env, binding=binding(stage, setup.replica, [setup.rank], numa)
        )
        try:
            self._child = Child(who, around, self._on_rank, self._on_rank_lost, self._on_exit)
        except StartupError as error:
            self._control.send(gone(f"could not be started: {error.__cause__}", ""))
            self._ended.set_result(None)
            return
        self._child.say(setup)

    async def _close(self) -> None:
        if self._feed is not None:
            self._feed.cancel()
            await asyncio.gather(self._feed, return_exceptions=True)
        if self._child is not None:
            self._child.kill()
            await asyncio.wait([self._ended], timeout=_REAP_S)
        self._control.close()

    def _on_rank_0(self, message: Message, attached: Attached) -> None:
        child = self._child
        if child is None:  # it is about to be told so
            attached.close()
            return
        match message:
            case Meeting():
                child.say(message)
                if not self._place.is_near:
                    self._feed = self._loop.create_task(self._fetch_feed(child))
            case Feed() if self._place.is_near:
                child.say(message, attached.fds)
            case Ping():
                child.say(message)
            case Kill():
                child.kill()
            case _:
                attached.close()
                raise ProtocolError(f"rank 0 does not say `{type(message).__name__}`")

    def _on_rank_0_gone(self, _reason: str | None) -> None:
        if self._child is not None:
            self._child.kill()

    def _on_rank(self, message: Message, attached: Attached) -> None:
        match message:
            case Fatal() | Pong():
                self._control.send(message)
            case _:
                attached.close()
                raise ProtocolError(f"a rank does not say `{type(message).__name__}`")

    def _on_rank_lost(self, reason: str | None) -> None:
        """Its stream has ended: so will the process, and it is not left to linger."""
        assert self._child is not None, "it has said something"
        if reason is None:
            self._loop.call_later(_LEAVE_S, self._child.kill)
        else:
            self._fail(reason)

    def _on_exit(self, how: str) -> None:
        assert self._child is not None, "it has ended"
        self._control.send(gone(how, self._child.last_lines()))
        self._ended.set_result(None)

    def _fail(self, reason: str) -> None:
        assert self._child is not None, "it runs"
        self._control.send(Fatal(reason=reason))
        self._child.kill()

    async def _fetch_feed(self, child: Child) -> None:
        """Get the way from rank 0; without it the rank is of no use."""
        try:
            sock = await self._dial(self._place.links.feed)
        except StartupError as error:
            self._fail(str(error))
            return
        child.say(Feed(rank=self._place.setup.rank), (sock.detach(),))

    async def _dial(self, link: int) -> socket.socket:
        place = self._place
        hello = Hello(
            role="link",
            stage=place.setup.stage,
            replica=place.setup.replica,
            incarnation=0,
            fingerprint="",
            link=link,
        )
        address, port = place.master
        target = near_name(address, port) if place.is_near else address
        try:
            sock, _ = await dial_until(_DIAL, target, port, hello, place.secret)
        except (OSError, ProtocolError) as error:
            told = f"rank 0 cannot be reached at `{address}:{port}`: {error}"
            raise StartupError(told, stage=place.stage.name) from error
        return sock
