"""One replica of a headless start: a process of this host, spoken to by a head elsewhere."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from typing import Final, Literal

from stagemesh.errors import StagemeshError
from stagemesh.plan.values import StagePlan
from stagemesh.runtime.child import Child
from stagemesh.runtime.launchers.far_rank import FarRanks, RankLinks
from stagemesh.runtime.launchers.gate import Gate
from stagemesh.runtime.launchers.quarters import Quarters
from stagemesh.runtime.launchers.ranked import RankedChildren, start_replica
from stagemesh.runtime.launchers.remote import gone
from stagemesh.runtime.messages import (
    PROTOCOL,
    Attached,
    Blame,
    Fatal,
    Kill,
    Message,
    Met,
    PeerAt,
    PeerComes,
    PeerGone,
    PeerUp,
    Ping,
    Pong,
    ProtocolError,
    Ready,
    Setup,
    Stop,
    Welcome,
)
from stagemesh.runtime.pipes import GONE_S
from stagemesh.runtime.process import Incarnation
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.stream import Stream
from stagemesh.runtime.transport.door import Patience, dial_until
from stagemesh.runtime.transport.handshake import ANY_REPLICA, Hello, Refused
from stagemesh.runtime.transport.tls import TlsFiles, secured
from stagemesh.runtime.transport.token import Secret
from stagemesh.spec.frozen import frozen

_DIAL: Final = Patience(absent_s=30.0, busy_s=30.0)
"""How long another start may take to be reached, once the head has said where it is."""
_REAP_S: Final = 10.0
_log: Final = logging.getLogger(__name__)


class NoHeadError(StagemeshError):
    """There is no head to work for, or it does not want this start."""


@frozen
class Site:
    """What all replicas of a headless start share."""

    stage: StagePlan
    """Their stage."""
    saved_plan: str
    """This start's own plan."""
    fingerprint: str
    """What the head's plan must equal."""
    secret: Secret
    """The token."""
    files: TlsFiles | None
    """Certificates, where streams go on under TLS."""
    master: tuple[str, int]
    """Where the head listens."""
    gate: Gate
    """Where this start does."""
    quarters: Quarters
    """What its processes find on this host."""
    patience_s: float
    """How long the head is looked for, and how long it may have no place for this start."""
    ranks: tuple[RankLinks, ...] = ()
    """Further ranks that others keep, if they do: they come to `gate`."""


class Post:
    """One process, from its registration to its end."""

    def __init__(self, site: Site, index: int, replica: int | None) -> None:
        """`index` is its place in this start's plan; `replica` the number it had at the head."""
        self._site = site
        self._index = index
        self._replica = ANY_REPLICA if replica is None else replica
        self._where = ReplicaId(stage=site.stage.stage_id, replica=index)
        self.who = Incarnation(stage=site.stage.name, replica=index)
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[str | None] = self._loop.create_future()
        self._reaped: asyncio.Future[None] = self._loop.create_future()
        self._dials: dict[int, asyncio.Task[None]] = {}
        self._links: set[int] = set()
        self._is_asked_to_stop = False
        self._control: Stream | None = None
        self._child: Child | RankedChildren | None = None

    async def register(self) -> int:
        """Find the head and be taken; return the number that it gives."""
        hello = self._hello("replica", incarnation=time.time_ns())
        is_first = self._replica == ANY_REPLICA
        patience = Patience(
            absent_s=self._site.patience_s if is_first else GONE_S, busy_s=self._site.patience_s
        )
        try:
            sock, number = await dial_until(patience, *self._site.master, hello, self._site.secret)
        except (OSError, ProtocolError) as error:
            where = "{}:{}".format(*self._site.master)
            did = "does not take this start" if isinstance(error, Refused) else "cannot be reached"
            raise NoHeadError(
                f"the head at `{where}` {did}: {str(error) or 'no answer'}"
            ) from error
        self._replica = number
        self.who = Incarnation(stage=self._site.stage.name, replica=number)
        sock = secured(sock, self._site.files, is_acceptor=False)
        self._control = Stream(sock, self._on_head, self._on_head_gone)
        return number

    async def serve(self) -> str | None:
        """Run the process; return how it ended, or `None` when the head had asked it to.

        Raises `NoHeadError` when there is no head any more.
        """
        site, stage = self._site, self._site.stage
        around = site.quarters.around(stage, self._index)
        far = FarRanks(gate=site.gate, links=site.ranks, files=site.files) if site.ranks else None
        self._child = start_replica(
            self.who, around, self._on_stage, self._on_stage_lost, self._on_exit, far
        )
        self._child.say(
            Setup(
                protocol=PROTOCOL,
                plan=site.quarters.seen(self._where, site.saved_plan),
                stage=stage.stage_id,
                replica=self._index,
            )
        )
        return await self._ended

    async def close(self) -> None:
        """End the process and everything around it; nothing of it is left."""
        dials = list(self._dials.values())
        for dial in dials:
            dial.cancel()
        await asyncio.gather(*dials, return_exceptions=True)
        for link in self._links:
            self._site.gate.forget(link)
        if self._child is not None:
            self._child.kill()
            await asyncio.wait([self._reaped], timeout=_REAP_S)
        if self._control is not None:
            self._control.close()

    def _on_head(self, message: Message, attached: Attached) -> None:
        assert self._child is not None, "nothing is read before the process has been started"
        match message:
            case PeerAt(link=link):
                dial = self._dials[link] = self._loop.create_task(self._dial(message))
                dial.add_done_callback(lambda _dial: self._dials.pop(link, None))
            case PeerComes(link=link):
                self._links.add(link)
                self._site.gate.expect(
                    link, lambda sock: self._hand_over(message, sock, "acceptor")
                )
            case PeerGone(link=link):
                self._links.discard(link)
                self._site.gate.forget(link)
                if link in self._dials:
                    self._dials[link].cancel()
            case Welcome() | Ping():
                self._child.say(message)
            case Stop():
                self._is_asked_to_stop = True
                self._child.say(message)
            case Kill():
                self._child.abandon()
            case _:
                attached.close()
                raise ProtocolError(f"a head does not say `{type(message).__name__}`")

    def _on_stage(self, message: Message, attached: Attached) -> None:
        assert self._control is not None, "the head was found first"
        match message:
            case Ready():
                assert self._child is not None, "it has said something"
                self._site.quarters.ready(self._where, str(self.who), self._child.pid)
                self._control.send(message)
            case Met() | Blame() | Pong() | Fatal():
                self._control.send(message)
            case _:
                attached.close()
                raise ProtocolError(f"a stage does not say `{type(message).__name__}` here")

    def _on_stage_lost(self, reason: str | None) -> None:
        assert self._child is not None, "it has said something"
        if reason is not None:
            self._fail(reason)
        self._child.kill()

    def _on_head_gone(self, reason: str | None) -> None:
        told = "the head is gone" if reason is None else f"the head is not understood: {reason}"
        if not self._ended.done():
            self._ended.set_exception(NoHeadError(told))

    def _on_exit(self, how: str) -> None:
        assert self._control is not None, "the head was found first"
        assert self._child is not None, "it has ended"
        self._control.send(gone(how, self._child.last_lines()))
        self._reaped.set_result(None)
        if not self._ended.done():
            self._ended.set_result(None if self._is_asked_to_stop else how)

    def _fail(self, reason: str) -> None:
        assert self._control is not None, "the head was found first"
        self._control.send(Fatal(reason=reason))

    async def _dial(self, peer: PeerAt) -> None:
        """Fetch a stream to another start; without it the replica is of no use."""
        assert self._child is not None, "it was started before"
        address, port = (peer.address, peer.port) if peer.address else self._site.master
        try:
            sock, _ = await dial_until(
                _DIAL, address, port, self._hello("link", link=peer.link), self._site.secret
            )
        except (OSError, ProtocolError) as error:
            self._fail(f"another start cannot be reached at `{address}:{port}`: {error}")
            self._child.kill()
            return
        self._hand_over(peer, sock, "dialer")

    def _hand_over(
        self, peer: PeerAt | PeerComes, sock: socket.socket, end: Literal["dialer", "acceptor"]
    ) -> None:
        assert self._child is not None, "it was started before"
        self._links.discard(peer.link)
        up = PeerUp(
            stage=peer.stage,
            replica=peer.replica,
            incarnation=peer.incarnation,
            tls=None if self._site.files is None else end,
        )
        self._child.say(up, (sock.detach(),))

    def _hello(
        self, role: Literal["replica", "link"], *, incarnation: int = 0, link: int = 0
    ) -> Hello:
        address, port = self._site.gate.place
        return Hello(
            role=role,
            stage=self._site.stage.stage_id,
            replica=self._replica,
            incarnation=incarnation,
            fingerprint=self._site.fingerprint,
            link=link,
            address=address,
            port=port,
        )
