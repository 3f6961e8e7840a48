"""The server: listens before it loads, serves until it is told to stop, drains, stops everything.

A port that is taken is found before a weight is loaded. While stages load, `/health` says so. The
first `stop` drains: nothing more is taken, and what runs has the plan's `shutdown_timeout` to end.
The second one ends everything at once.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from aiohttp import web

from stagemesh.plan.values import Plan
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.running import UNREAD_BYTES
from stagemesh.runtime.telemetry import Observers
from stagemesh.runtime.transport.token import Secret
from stagemesh.serve.control import Control, OwnSystem
from stagemesh.serve.http import Api, OwnWatch, Watched
from stagemesh.serve.sockets import control_path, listen_at, listen_on, url_of
from stagemesh.serve.spans import Spans
from stagemesh.spec.frozen import frozen

_log: Final = logging.getLogger(__name__)


@frozen
class ServeOptions:
    """How a server is reached and how it stops."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8000
    """Port to listen on; 0 takes any that is free."""
    key: Secret = Secret()
    """What requests for work must bear, if anything."""
    control: Path | None = None
    """The control socket; beside those of other servers unless given."""
    queue_limit: int | None = None
    """Requests that may wait beyond those that the first stage serves at a time; `None`: any."""
    max_request_bytes: int = 256 * 1024 * 1024
    """Longest body of a request."""
    max_unread_bytes: int = UNREAD_BYTES
    """Output of a request that may wait for a client that does not read."""


@frozen
class Listening:
    """Where a server can be reached."""

    url: str
    """The public interface."""
    control: Path | None
    """The control socket; `None` where another process has it."""


@frozen
class OneOfSeveral:
    """What a server is given that is one frontend of several."""

    frontend: int
    """Its number."""
    door: socket.socket
    """Where it listens."""
    watch: Watched
    """Who knows how all of them are."""


class Server:
    """One model, served."""

    def __init__(
        self, plan: Plan, options: ServeOptions, place: OneOfSeveral | None = None
    ) -> None:
        """Nothing is started yet; raises `DiagnosticError` when the plan cannot be run."""
        self._omni = AsyncOmni(
            plan,
            queue_limit=options.queue_limit,
            unread_bytes=options.max_unread_bytes,
            frontend=0 if place is None else place.frontend,
        )
        self._omni.observers.add(Spans(plan.pipeline))
        self._options = options
        self._place = place
        self._stop = asyncio.Event()
        self._runners: list[web.AppRunner] = []
        self._control: Path | None = None

    @property
    def omni(self) -> AsyncOmni:
        """The system."""
        return self._omni

    @property
    def observers(self) -> Observers:
        """Who hears of what happens."""
        return self._omni.observers

    async def run(self, on_ready: Callable[[Listening], None]) -> None:
        """Serve until `stop`; everything that was started is stopped when this returns.

        `on_ready` is called once when requests can be served. Raises `DiagnosticError` when the
        address cannot be listened on, `StartupError` when a stage does not come up.
        """
        try:
            listening = await self._listen()
            if await self._started():
                on_ready(listening)
                await self._stop.wait()
                if not await self._omni.drain():
                    _log.warning("requests that did not end in time are given up")
        finally:
            await self._close()

    def stop(self) -> None:
        """Begin to drain; a second call ends everything at once."""
        if self._stop.is_set():
            _log.warning("told to stop again: everything ends now")
            self._omni.kill()
        self._stop.set()

    async def _listen(self) -> Listening:
        options, place = self._options, self._place
        public = listen_on(options.host, options.port) if place is None else place.door
        host, port = public.getsockname()[:2]
        watch = OwnWatch(self._omni) if place is None else place.watch
        api = Api(self._omni, options.key, watch)
        await self._serve(api.app(options.max_request_bytes), public)
        if place is None:
            path = options.control or control_path(port)
            await self._serve(Control(OwnSystem(self._omni)).app(), listen_at(path))
            self._control = path
        return Listening(url=url_of(host, port), control=self._control)

    async def _serve(self, app: web.Application, sock: socket.socket) -> None:
        # A client that goes away cancels the handler, and with it the request.
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0)
        self._runners.append(runner)
        await runner.setup()
        await web.SockSite(runner, sock).start()

    async def _started(self) -> bool:
        """Start the stages; `False` when the server was told to stop meanwhile."""
        start = asyncio.ensure_future(self._omni.start())
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((start, stop), return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                start.result()
            return start.done()
        finally:
            for task in (start, stop):
                task.cancel()
            await asyncio.wait((start, stop))

    async def _close(self) -> None:
        try:
            await self._omni.close()
        finally:
            for runner in self._runners:
                await runner.cleanup()
            if self._control is not None:
                self._control.unlink(missing_ok=True)
