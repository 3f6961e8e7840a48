"""The start that others register with: it runs one stage or none itself, and waits for the rest.

A replica that comes is given the seat that waits for it when it was started with the same model,
topology and edges. Streams between replicas of different starts are dialed by one of them: to the
head itself where that is an end, so that other hosts need to reach nothing else of each other than
what their edges ask for. Payloads never pass through here.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from stagemesh.config.launch import NO_STAGE, LaunchOptions
from stagemesh.errors import DiagnosticError
from stagemesh.plan.fingerprint import fingerprint
from stagemesh.plan.values import Plan
from stagemesh.runtime.launchers.local import CALLER_UP, LocalLauncher, StageProcess
from stagemesh.runtime.launchers.remote import Inquest, RemoteProcess
from stagemesh.runtime.messages import PeerAt, PeerComes, PeerUp
from stagemesh.runtime.process import Launcher, Party, Process, Start
from stagemesh.runtime.transport.door import Door, listen
from stagemesh.runtime.transport.handshake import ANY_REPLICA, Guest, Hello, Verdict
from stagemesh.runtime.transport.tls import TlsFiles, secured, tls_context
from stagemesh.runtime.transport.token import Secret, check_bind, read_secret
from stagemesh.spec.frozen import frozen

REPORT_S: Final = 5.0
"""Time between two reports of what is missing."""
_log: Final = logging.getLogger(__name__)


@frozen
class Entrance:
    """Where a head listens, and whom it lets in."""

    address: str
    """The address."""
    port: int
    """The port; 0 for any that is free."""
    secret: Secret
    """What others must know."""

    @classmethod
    def of(cls, launch: LaunchOptions) -> Entrance:
        """As a start says it; raises `DiagnosticError` when it may not listen there."""
        assert launch.omni_master_address is not None, "`--stage-id` needs it"
        assert launch.omni_master_port is not None, "`--stage-id` needs it"
        secret = read_secret(launch)
        address, is_insecure = launch.omni_master_address, launch.insecure_no_token
        if found := check_bind(address, secret, is_insecure=is_insecure):
            raise DiagnosticError(found)
        return cls(address=address, port=launch.omni_master_port, secret=secret)


class HeadLauncher(Launcher):
    """Starts what runs here, and takes in what other starts bring."""

    def __init__(
        self, plan: Plan, entrance: Entrance, is_here: Callable[[Start], bool] | None = None
    ) -> None:
        """Listen there; needs a running loop. `is_here` says what is started on this host.

        Without it that is what the launch options name.
        Raises `DiagnosticError` when certificates cannot be used, and `StartupError` when nobody
        can listen there.
        """
        launch = plan.launch
        self._is_here = is_here or self._runs
        self._files = TlsFiles.of(launch)
        if self._files is not None:
            tls_context(self._files, is_acceptor=True)
        self._plan = plan
        self._fingerprint = fingerprint(plan)
        self._local = LocalLauncher(plan)
        self._loop = asyncio.get_running_loop()
        self._seats: list[RemoteProcess] = []
        self._links: dict[int, _Coming] = {}
        self._works: set[asyncio.Task[None]] = set()
        self._door = Door(
            listen(entrance.address, entrance.port), entrance.secret, self._judge, self._come_in
        )
        self._timer = self._loop.call_later(REPORT_S, self._report)

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._door.port

    async def open(self) -> None:
        """Prepare for what runs here; it listens already."""
        await self._local.open()

    def start(self, start: Start) -> Process:
        """Start a process here, or make a seat for one from elsewhere."""
        if self._is_here(start):
            return self._local.start(start)
        return self.seat(start)

    def seat(self, start: Start, inquest: Inquest | None = None) -> RemoteProcess:
        """Make a seat for a process that comes from elsewhere."""
        seat = RemoteProcess(start, inquest)
        self._seats = [other for other in self._seats if other.alive]
        self._seats.append(seat)
        return seat

    def call(self, process: Process) -> tuple[asyncio.Future[socket.socket], asyncio.Future[None]]:
        """Make the caller's stream to a process."""
        if not isinstance(process, RemoteProcess):
            return self._local.call(process)
        link, ours = self._expect(is_own=True)
        met = process.meet(CALLER_UP, _at(CALLER_UP, link))
        return ours, self._work(_called(ours, met, process))

    def connect(self, one: Party, other: Party) -> Sequence[asyncio.Future[None]]:
        """Make a stream between two."""
        first, second = one.process, other.process
        if isinstance(first, RemoteProcess) and isinstance(second, RemoteProcess):
            return [self._work(self._between(one.up, first, other.up, second))]
        if isinstance(first, RemoteProcess):
            assert isinstance(second, StageProcess), "it was started here"
            return [self._work(self._to_here(other.up, second, one.up, first))]
        if isinstance(second, RemoteProcess):
            assert isinstance(first, StageProcess), "it was started here"
            return [self._work(self._to_here(one.up, first, other.up, second))]
        return self._local.connect(one, other)

    async def close(self) -> None:
        """Let nobody in any more."""
        self._timer.cancel()
        for work in self._works:
            work.cancel()
        try:
            await asyncio.gather(*self._works, return_exceptions=True)
            await self._door.close()
        finally:
            await self._local.close()

    def _runs(self, start: Start) -> bool:
        launch = self._plan.launch
        is_ours = launch.stage_id != NO_STAGE and start.stage.stage_id == launch.stage_id
        return is_ours and start.who.replica < launch.omni_dp_size_local

    def _judge(self, hello: Hello) -> Verdict:
        """Decide about somebody who knows the token."""
        if hello.role == "link":
            if hello.link in self._links:
                return Verdict()
            # Its other end has ended, of which it is about to be told: no reason to fail.
            return Verdict(reason="nobody expects this stream", again=True)
        if all(stage.stage_id != hello.stage for stage in self._plan.stages):
            return Verdict(reason=f"the model has no stage `{hello.stage}`")
        if hello.fingerprint != self._fingerprint:
            return Verdict(
                reason="it was started with another model, other edges or other connectors"
            )
        seat = self._seat_for(hello)
        if seat is None:
            self._replace(hello)
            return Verdict(reason=f"no replica of stage `{hello.stage}` is missing", again=True)
        return Verdict(number=seat.replica)

    def _seat_for(self, hello: Hello) -> RemoteProcess | None:
        free = [
            seat
            for seat in self._seats
            if seat.is_free
            and seat.stage == hello.stage
            and hello.replica in (ANY_REPLICA, seat.replica)
        ]
        return min(free, key=lambda seat: seat.replica, default=None)

    def _replace(self, hello: Hello) -> None:
        """An older process that is still thought to run, in the place of a new one, has ended."""
        for seat in self._seats:
            if (seat.stage, seat.replica) == (hello.stage, hello.replica) and seat.seated.done():
                before = None if seat.seated.cancelled() else seat.seated.result()
                if before is not None and before.incarnation < hello.incarnation:
                    seat.lost("a newer one has come in its place")

    def _come_in(self, guest: Guest) -> None:
        hello, sock = guest.hello, guest.sock
        if hello.role == "link":
            coming = self._links.pop(hello.link, None)
            if coming is None:  # whoever expected it has given up meanwhile
                sock.close()
            elif coming.is_own:
                coming.end.set_result(secured(sock, self._files, is_acceptor=True))
            else:
                coming.end.set_result(sock)
            return
        seat = self._seat_for(hello)
        if seat is None:  # somebody else was faster: it comes again
            sock.close()
            return
        seat.seat(hello, secured(sock, self._files, is_acceptor=True))
        _log.info("%s has come from `%s:%d`", seat.name, hello.address, hello.port)

    def _expect(self, *, is_own: bool = False) -> tuple[int, asyncio.Future[socket.socket]]:
        """Agree on a stream that comes in; the future is done when it has, and owned by who asked.

        It is under TLS, where there is any, when it is this process' `own`; a stage's is not yet.
        """
        link = secrets.randbits(62)
        end: asyncio.Future[socket.socket] = self._loop.create_future()
        self._links[link] = _Coming(end=end, is_own=is_own)
        end.add_done_callback(lambda _end: self._links.pop(link, None))
        return link, end

    async def _to_here(
        self, up: PeerUp, process: StageProcess, far_up: PeerUp, far: RemoteProcess
    ) -> None:
        """A stream from a process elsewhere to one of this host."""
        link, coming = self._expect()
        met = far.meet(up, _at(up, link))
        try:
            await _until(coming, process, far)
            if coming.done() and process.alive:
                await process.meet(self._marked(far_up), coming.result())
        finally:
            if not coming.cancel():
                coming.result().close()  # which is nobody's, or has been handed over
        await _known(link, [_End(process=far, up=up, met=met)], process, far)

    async def _between(
        self, up: PeerUp, door: RemoteProcess, far_up: PeerUp, far: RemoteProcess
    ) -> None:
        """A stream from one process elsewhere to another one's door."""
        link = secrets.randbits(62)
        comes = PeerComes(
            stage=far_up.stage, replica=far_up.replica, incarnation=far_up.incarnation, link=link
        )
        ends = [_End(process=door, up=far_up, met=door.meet(far_up, comes))]
        waits: set[asyncio.Future[Hello] | asyncio.Future[str]] = {door.seated}
        waits |= {door.exited, far.exited}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if door.has_come and door.alive:
            hello = door.seated.result()
            met = far.meet(up, _at(up, link, hello.address, hello.port))
            ends.append(_End(process=far, up=up, met=met))
        await _known(link, ends, door, far)

    def _marked(self, up: PeerUp) -> PeerUp:
        is_plain = self._files is None
        return PeerUp(
            stage=up.stage,
            replica=up.replica,
            incarnation=up.incarnation,
            tls=None if is_plain else "acceptor",
        )

    def _work(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        work = self._loop.create_task(doing)
        self._works.add(work)
        work.add_done_callback(self._works.discard)
        return work

    def _report(self) -> None:
        """Say which stages are missing, until none is."""
        self._timer = self._loop.call_later(REPORT_S, self._report)
        missing: dict[int, list[str]] = {}
        for seat in self._seats:
            if seat.is_free:
                missing.setdefault(seat.stage, []).append(str(seat.replica))
        if missing:
            told = ", ".join(
                f"{stage} (replica {', '.join(numbers)})"
                for stage, numbers in sorted(missing.items())
            )
            _log.warning("waiting for other starts to bring stage %s", told)


@frozen
class _Coming:
    """A stream that was agreed on."""

    end: asyncio.Future[socket.socket]
    is_own: bool


async def _called(
    ours: asyncio.Future[socket.socket], met: asyncio.Future[None], process: RemoteProcess
) -> None:
    await _until(ours, process)
    await met


@frozen
class _End:
    """An end of a stream between starts."""

    process: RemoteProcess
    """Whose it is."""
    up: PeerUp
    """Whom it is told of."""
    met: asyncio.Future[None]
    """Done once it knows the other."""


async def _known(link: int, ends: Sequence[_End], *processes: Process) -> None:
    """Wait until all ends know of the stream; who waits for one that has ended is told so."""
    waits: set[asyncio.Future[None] | asyncio.Future[str]] = {end.met for end in ends}
    waits.update(process.exited for process in processes)
    while not all(end.met.done() for end in ends) and all(each.alive for each in processes):
        _, waits = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        if not end.met.done():
            end.process.give_up(end.up, link)


async def _until(coming: asyncio.Future[socket.socket], *processes: Process) -> None:
    """Wait until a stream has come, or one of those that it is for has ended."""
    waits: set[asyncio.Future[socket.socket] | asyncio.Future[str]] = {coming}
    waits.update(process.exited for process in processes)
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)


def _at(up: PeerUp, link: int, address: str = "", port: int = 0) -> PeerAt:
    return PeerAt(
        stage=up.stage,
        replica=up.replica,
        incarnation=up.incarnation,
        link=link,
        address=address,
        port=port,
    )
