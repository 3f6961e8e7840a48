"""Sessions of several frontends, as their clients see them: two places, and four frontends."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any

import aiohttp
import pytest

from tests.serve.frontends.several import Several, divided, several
from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow

TRIES = 500
"""Connections after which chance alone would have reached every frontend."""
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    """The first two frontends hold one session each, and the others none."""
    with several(divided(4, sessions=2, num_outputs=1), tmp_path_factory.mktemp("serve")) as found:
        yield found


class Talker:
    """A session and its connection."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, opened: Mapping[str, Any]) -> None:
        self._socket = socket
        self.group = opened["group"]
        self.replicas = opened["replicas"]

    async def say(self, text: str) -> list[tuple[str, int]]:
        """Run a turn; return its texts and the numbers of the turn."""
        await self._socket.send_json({"type": "turn", "prompt": text})
        found = []
        while (event := await _next(self._socket))["type"] == "output":
            meta = event["payload"]["meta"]
            found.append((meta["text"], meta["turn"]))
        assert event["type"] == "done", event
        return found

    async def breaks(self) -> bool:
        """Wait for something: whether that is the end of the connection."""
        message = await self._socket.receive(WAIT_S)
        return message.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)


async def _next(socket: aiohttp.ClientWebSocketResponse) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((await socket.receive(WAIT_S)).data)
    return found


async def talkers(server: Several, stack: AsyncExitStack, *groups: int) -> list[Talker]:
    """Try connections, each from a port of its own, until there is a session of each group."""
    found: dict[int, Talker] = {}
    url = f"{server.listening.url}/v1/session"
    for _ in range(TRIES):
        if set(groups) <= set(found):
            return [found[group] for group in groups]
        client = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        )
        try:
            socket = await client.ws_connect(url)
        except aiohttp.WSServerHandshakeError:
            continue  # this one has no place
        stack.push_async_callback(socket.close)
        one = Talker(socket, await _next(socket))
        found[one.group] = one
    raise AssertionError(f"sessions of {set(found)} alone")


def refusal(server: Several) -> Mapping[str, Any]:
    """Ask for a session that there is no place for."""
    connection = http.client.HTTPConnection(*server.address, timeout=WAIT_S)
    try:
        connection.request("GET", "/v1/session", headers=UPGRADE)
        answer = connection.getresponse()
        assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
        assert answer.headers["Retry-After"] is not None
        error: Mapping[str, Any] = json.loads(answer.read())["error"]
        return error
    finally:
        connection.close()


def test_places_are_those_of_each_frontend_and_nobody_lends_one(server: Several) -> None:
    """Who has no place says so, retryably: with a session of its own, or without any budget."""

    async def work() -> None:
        async with AsyncExitStack() as stack:
            one, other = await talkers(server, stack, 0, 1)
            assert (one.replicas, other.replicas) == ({"stage0": 0}, {"stage0": 1})
            told = [await asyncio.to_thread(refusal, server) for _ in range(60)]
            assert {error["message"] for error in told} == {
                "duplex_session_capacity_exhausted: limit=0",
                "duplex_session_capacity_exhausted: limit=1",
            }
            assert all(error["retryable"] for error in told)
            _, body = await asyncio.to_thread(server.get, "/metrics")
            for number, count in enumerate((1, 1, 0, 0)):
                series = f'stagemesh_sessions{{frontend="{number}",state="open"}} {count}.0'
                assert series in body.decode()

    asyncio.run(work())


def test_sessions_of_two_frontends_know_nothing_of_each_other(server: Several) -> None:
    """Each has its own turns, though both have the same name where they are."""

    async def work() -> None:
        async with AsyncExitStack() as stack:
            one, other = await talkers(server, stack, 0, 1)
            assert await one.say("a") == [("a#0", 1)]
            assert await other.say("x") == [("x#0", 1)]
            assert await one.say("b") == [("ab#0", 2)]
            assert await other.say("y") == [("xy#0", 2)]

    asyncio.run(work())


def test_a_frontend_that_is_killed_ends_its_own_sessions_alone(server: Several) -> None:
    """The other goes on from turn to turn, and there is room again once it is back."""

    async def work() -> None:
        async with AsyncExitStack() as stack:
            one, other = await talkers(server, stack, 0, 1)
            assert await other.say("x") == [("x#0", 1)]
            state = await asyncio.to_thread(server.state)
            killed = state["frontends"][0]["pid"]
            os.kill(killed, signal.SIGKILL)
            assert await one.breaks()
            assert await other.say("y") == [("xy#0", 2)]
            await asyncio.to_thread(
                server.until,
                lambda state: (
                    state["frontends"][0]["pid"] != killed
                    and state["frontends"][0]["state"] == "serving"
                ),
            )
            (back,) = await talkers(server, stack, 0)
            assert await back.say("n") == [("n#0", 1)]
            assert await other.say("z") == [("xyz#0", 3)]

    asyncio.run(work())
