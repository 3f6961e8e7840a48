"""Servers of fake pipelines, each started once for all tests of a module."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from stagemesh.plan.values import Plan
from stagemesh.runtime.loop_thread import LoopThread
from stagemesh.serve.server import Listening, ServeOptions, Server
from tests.waiting import WAIT_S

Result = TypeVar("Result")


class Client:
    """A user of a server, on the server's loop."""

    def __init__(self, thread: LoopThread, server: Server, listening: Listening) -> None:
        self._thread = thread
        self.server = server
        self.listening = listening

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the server's loop."""
        return self._thread.call(asyncio.wait_for(work, WAIT_S))

    def post(
        self, body: object, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a body to the native endpoint; return status, headers and the whole answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.call(self._ask("POST", "/v1/generate", data, headers))

    def get(self, path: str) -> tuple[int, Mapping[str, str], bytes]:
        """Get a path."""
        return self.call(self._ask("GET", path, None, None))

    async def _ask(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str] | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        url = f"{self.listening.url}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, data=data, headers=headers) as answer,
        ):
            return answer.status, answer.headers, await answer.read()


def events(body: bytes) -> list[tuple[str, Mapping[str, Any]]]:
    """Read server-sent events as a browser would."""
    found = []
    for block in body.decode().split("\n\n")[:-1]:
        kind, data = block.split("\n")
        found.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


@contextmanager
def serving(plan: Plan, folder: Path, **options: Any) -> Iterator[Client]:  # noqa: ANN401  as declared
    """Serve `plan` on a free port until the context is left."""
    thread = LoopThread()
    server = Server(plan, ServeOptions(port=0, control=folder / "private" / "s.sock", **options))
    ready: concurrent.futures.Future[Listening] = concurrent.futures.Future()

    async def run() -> None:
        try:
            await server.run(ready.set_result)
        finally:
            ready.cancel()

    async def begin() -> asyncio.Task[None]:
        return asyncio.ensure_future(run())

    task = thread.call(begin())
    try:
        yield Client(thread, server, ready.result(WAIT_S))
    finally:
        thread.call(_stopped(server, task))
        thread.stop()


async def _stopped(server: Server, task: asyncio.Task[None]) -> None:
    server.stop()
    await asyncio.wait_for(task, WAIT_S)
