"""Servers of fake pipelines with several frontends."""

from __future__ import annotations

import asyncio
import concurrent.futures
import http.client
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stagemesh.config.launch import LaunchOptions
from stagemesh.plan.setup import RecoveryPlan
from stagemesh.plan.values import Plan
from stagemesh.runtime.loop_thread import LoopThread
from stagemesh.serve.frontends.parent import Frontends
from stagemesh.serve.server import Listening, ServeOptions
from tests.runtime.started import POLL_S
from tests.runtime.talking import duplex_plan, talking
from tests.waiting import WAIT_S


def divided(
    frontends: int,
    sessions: int = 8,
    recovery: RecoveryPlan | None = None,
    **program: object,
) -> Plan:
    """One stage with a replica, and so a group, for each frontend."""
    groups = [(replica,) for replica in range(frontends)]
    duplex = duplex_plan(groups, sessions=sessions, cap=2, frontends=frontends, can_resume=False)
    plan = talking(duplex, (frontends,), program)
    (stage,) = plan.stages
    setup = replace(stage.setup, recovery=recovery or RecoveryPlan(restart_delay=0.0))
    return replace(
        plan,
        stages=(replace(stage, setup=setup),),
        launch=LaunchOptions(api_server_count=frontends),
    )


class Several:
    """A user and an owner of such a server."""

    def __init__(
        self,
        thread: LoopThread,
        server: Frontends,
        listening: Listening,
        running: asyncio.Task[None],
    ) -> None:
        self._thread = thread
        self._running = running
        self.server = server
        self.listening = listening

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        found = urlsplit(self.listening.url)
        assert found.hostname is not None
        assert found.port is not None
        return found.hostname, found.port

    def get(self, path: str) -> tuple[int, bytes]:
        """Get a path over a connection of its own."""
        connection = http.client.HTTPConnection(*self.address, timeout=WAIT_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def state(self) -> Mapping[str, Any]:
        """What its control socket tells."""
        return self._thread.call(asyncio.wait_for(self.server.state(), WAIT_S))

    def scale(self, stage: str, replicas: int) -> None:
        """Ask for so many replicas."""
        self._thread.call(asyncio.wait_for(self.server.scale(stage, replicas), WAIT_S))

    def until(self, holds: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
        """Wait for a state that nobody tells of."""

        async def look() -> Mapping[str, Any]:
            while not holds(state := await self.server.state()):  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(POLL_S)
            return state

        return self._thread.call(asyncio.wait_for(look(), WAIT_S))

    def stop(self) -> None:
        """Tell it to stop."""

        async def tell() -> None:
            self.server.stop()

        self._thread.call(tell())

    def wait_for_end(self) -> None:
        """Wait until it has ended, however it did."""
        self._thread.call(asyncio.wait_for(asyncio.wait({self._running}), WAIT_S))


@contextmanager
def several(plan: Plan, folder: Path, **options: Any) -> Iterator[Several]:  # noqa: ANN401  as declared
    """Serve `plan` on a free port until the context is left; raises what the server raises.

    `log` among the options says what frontends log.
    """
    thread = LoopThread()
    log = options.pop("log", None)
    control = folder / "private" / "s.sock"
    server = Frontends(plan, ServeOptions(**{"port": 0, "control": control, **options}), log)
    ready: concurrent.futures.Future[Listening] = concurrent.futures.Future()

    async def begin() -> asyncio.Task[None]:
        return asyncio.ensure_future(run())

    async def run() -> None:
        try:
            await server.run(ready.set_result)
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise

    task = thread.call(begin())
    try:
        found = Several(thread, server, ready.result(WAIT_S), task)
        try:
            yield found
        finally:
            found.stop()
    finally:
        try:
            thread.call(asyncio.wait_for(task, WAIT_S))
        finally:
            thread.stop()
