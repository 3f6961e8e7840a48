"""Full-duplex sessions over WebSockets, as their clients see them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import pytest

from stagemesh.runtime.health import ReplicaState
from stagemesh.runtime.replica import ReplicaId
from stagemesh.serve.metric_table import SESSIONS
from tests.runtime.talking import duplex_plan, talking
from tests.serve.served import Client, serving
from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow

STALL = {"stage1": {"fail_at": "stall"}}
Event: TypeAlias = Mapping[str, Any]


class Talker:
    """One connection of a client."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def turn(self, name: str, prompt: str, **more: object) -> None:
        """Say something."""
        await self.socket.send_json({"type": "turn", "id": name, "prompt": prompt, **more})

    async def next(self) -> Event:
        """The next event."""
        found: Event = json.loads((await self.socket.receive(WAIT_S)).data)
        return found

    async def until(self, kind: str) -> list[Event]:
        """All events up to one of a kind."""
        found = [await self.next()]
        while found[-1]["type"] != kind:
            found.append(await self.next())
        return found


@asynccontextmanager
async def talker(client: Client, query: str = "") -> AsyncIterator[Talker]:
    """Connect."""
    url = f"{client.listening.url}/v1/session{query}"
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        yield Talker(socket)


async def refused(client: Client, query: str = "") -> tuple[int, Event]:
    """Ask for a connection that is refused; return the status and the error."""
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    status, _, body = await client._ask("GET", f"/v1/session{query}", None, headers)
    return status, json.loads(body)["error"]


async def num_refused(client: Client) -> float:
    """How many sessions were refused for want of room."""
    _, _, page = await client._ask("GET", "/metrics", None, None)
    name = 'stagemesh_sessions_refused_total{reason="resource_exhausted"} '
    found = [line for line in page.decode().splitlines() if line.startswith(name)]
    return float(found[0].removeprefix(name)) if found else 0.0


def states(client: Client) -> dict[str, int]:
    """How many sessions do what."""
    found = client.server._omni.measures().sessions.states
    return {name: count for name, count in found.items() if count}


def is_whole(client: Client) -> bool:
    """Whether every replica takes requests, those that were started again included."""
    stages = client.server._omni.health().stages
    return all(each.state is ReplicaState.SERVING for stage in stages for each in stage.replicas)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what nobody tells of."""
    while not holds():  # noqa: ASYNC110  there is no event
        await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server of two groups with one session each."""
    duplex = duplex_plan([(0, 0), (1, 1)], cap=1, completed_append_cache_size=2)
    plan = talking(duplex, (2, 2), {"num_outputs": 2})
    with serving(plan, tmp_path_factory.mktemp("serve")) as found:
        yield found


@pytest.fixture
def client(served: Client) -> Iterator[Client]:
    """The shared one; every test leaves it without sessions, and with all replicas."""
    yield served

    async def left() -> None:
        await until(lambda: not states(served) and is_whole(served))

    served.call(left())


def test_a_session_is_opened_talks_and_is_closed(client: Client) -> None:
    """Every event is numbered, and every turn has one end."""

    async def work() -> None:
        async with talker(client) as one:
            opened = await one.next()
            assert opened["type"] == "opened"
            assert opened["replicas"] == {"stage0": opened["group"], "stage1": opened["group"]}
            assert opened["resume"]["within_s"] == 30
            await one.turn("a", "x")
            await one.turn("b", "y")
            found = [*await one.until("done"), *await one.until("done")]
            assert [event["number"] for event in found] == [1, 2, 3, 4, 5, 6]
            assert [(event["type"], event["id"]) for event in found] == [
                *[("output", "a"), ("output", "a"), ("done", "a")],
                *[("output", "b"), ("output", "b"), ("done", "b")],
            ]
            texts = [event["payload"]["meta"]["text"] for event in found if "payload" in event]
            assert texts == ["x#0", "x#1", "xy#0", "xy#1"]
            assert [report["stage"] for report in found[-1]["report"]] == ["stage0", "stage1"]
            await one.socket.send_json({"type": "close"})
            closed = await one.next()
            assert (closed["type"], closed["reason"]) == ("closed", "client")
            assert (await one.socket.receive(WAIT_S)).type is aiohttp.WSMsgType.CLOSE

    client.call(work())


def test_a_full_system_refuses_with_503_and_says_to_try_again(client: Client) -> None:
    """And is healthy all the same."""

    async def work() -> None:
        async with talker(client) as first:  # so that some session has ended
            await first.socket.send_json({"type": "close"})
            await first.until("closed")
        await until(lambda: not states(client))
        before = await num_refused(client)
        async with talker(client) as one, talker(client) as other:
            groups = {(await each.next())["group"] for each in (one, other)}
            assert groups == {0, 1}
            status, error = await refused(client)
            assert (status, error["code"], error["retryable"]) == (503, "RT060", True)
            assert "replica_capacity_exhausted" in error["message"]
            status, _, _ = await client._ask("GET", "/health", None, None)
            assert status == 200
            _, _, page = await client._ask("GET", "/metrics", None, None)
            metrics = page.decode()
            for metric in SESSIONS:
                assert f"\n{metric.full_name}" in metrics
            assert 'stagemesh_sessions{state="open"} 2.0' in metrics
            assert await num_refused(client) == before + 1
            assert 'stagemesh_sessions_ended_total{reason="client"}' in metrics
            for each in (one, other):
                await each.socket.send_json({"type": "close"})

    client.call(work())


def test_what_is_wrong_with_a_turn_is_told_and_the_session_goes_on(client: Client) -> None:
    """Nonsense, parameters of no stage, a turn that fails, one that is left, one too many."""

    async def work() -> None:
        async with talker(client) as one:
            await one.next()
            await one.socket.send_str("{")
            assert (await one.next())["error"]["code"] == "SV001"
            await one.turn("a", "x", sampling_params={"nobody": {}})
            failed = await one.next()
            assert (failed["type"], failed["id"]) == ("failed", "a")
            await one.turn("b", "x", sampling_params={"stage1": {"fail_at": "step"}})
            assert (await one.next())["error"]["stage"] == "stage1"
            await one.turn("c", "x", sampling_params=STALL)
            for number in range(6):
                await one.turn(f"d{number}", "y")
            full = await one.next()
            while full["id"] != "d5":
                full = await one.next()
            assert (full["type"], full["error"]["code"]) == ("failed", "RT060")
            assert "input_backpressure" in full["error"]["message"]
            assert full["error"]["retryable"]
            await one.socket.send_json({"type": "cancel", "id": "nobody"})
            await one.socket.send_json({"type": "cancel", "id": "c"})
            left = await one.next()
            assert (left["type"], left["id"], left["error"]["code"]) == ("failed", "c", "RT015")
            for number in range(3):
                assert (await one.until("done"))[-1]["id"] == f"d{number}"
            await one.socket.send_bytes(b'{"type": "close"}')
            await one.until("closed")

    client.call(work())


def test_who_comes_back_hears_what_was_missed_and_goes_on(client: Client) -> None:
    """By the token, after the event that was seen last; a turn that is said again is not new."""

    async def work() -> None:
        async with talker(client) as one:
            opened = await one.next()
            await one.turn("a", "x")
            (first, *_) = await one.until("done")
        await until(lambda: states(client) == {"open": 1})
        query = f"?resume={opened['resume']['token']}"
        assert (await refused(client, f"{query}&after=99"))[0] == 410
        assert (await refused(client, f"{query}&after=x"))[0] == 400
        assert (await refused(client, "?resume=nobody"))[0] == 404
        async with talker(client, f"{query}&after={first['number']}") as again:
            assert [event["number"] for event in await again.until("done")] == [2, 3]
            await again.turn("a", "x")
            repeated = await again.next()
            assert (repeated["type"], repeated["id"], repeated["number"]) == ("done", "a", 4)
            await again.turn("b", "y", sampling_params=STALL)
            await again.turn("b", "y", sampling_params=STALL)
            # another connection with the token takes over, and this one ends
            async with talker(client, query) as third:
                message = await again.socket.receive(WAIT_S)
                assert message.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
                await third.socket.send_json({"type": "cancel", "id": "b"})
                assert (await third.next())["type"] == "failed"
                for name in ("c", "d"):
                    await third.turn(name, "z")
                    (out, *_) = await third.until("done")
                    assert out["payload"]["meta"]["text"].startswith("x")
                await third.turn("a", "w")  # two others have ended since: it is new again
                assert (await third.next())["type"] == "output"
                await third.until("done")
                await third.socket.send_json({"type": "close"})
                await third.until("closed")

    client.call(work())


def test_a_death_ends_the_sessions_of_the_replica_with_an_event(client: Client) -> None:
    """It names stage, replica and cause; idle ones hear it too."""

    async def work() -> None:
        async with talker(client) as one:
            replica = (await one.next())["replicas"]["stage1"]
            os.kill(client.server._omni.pids[ReplicaId(stage=1, replica=replica)], signal.SIGKILL)
            closed = await one.next()
            assert (closed["type"], closed["reason"]) == ("closed", "failed")
            error = closed["error"]
            assert (error["stage"], error["replica"]) == ("stage1", replica)
            assert "SIGKILL" in error["message"]
            assert error["retryable"]

    client.call(work())


def run(
    duplex: Mapping[str, Any],
    folder: Path,
    work: Callable[[Client], Awaitable[None]],
    **options: int,
) -> None:
    """Serve one group, of one session unless more are said, and do something with it."""
    plan = talking(duplex_plan([(0, 0)], **{"cap": 1, **duplex}), (1, 1), {"num_outputs": 1})
    with serving(plan, folder, **options) as client:

        async def all_of_it() -> None:
            await work(client)

        client.call(all_of_it())


def test_who_does_not_come_back_in_time_has_lost_the_session(tmp_path: Path) -> None:
    """Also with a turn that runs: nobody would hear of it."""

    async def work(client: Client) -> None:
        async with talker(client) as one:
            opened = await one.next()
            await one.turn("a", "x", sampling_params=STALL)
        await until(lambda: not states(client))
        assert (await refused(client, f"?resume={opened['resume']['token']}"))[0] == 404

    run({"disconnect_grace_s": 0.1, "reaper_interval_s": 0.02}, tmp_path, work)


def test_sessions_that_cannot_be_resumed_end_with_their_connection(tmp_path: Path) -> None:
    """Nobody could ever come back to them."""

    async def work(client: Client) -> None:
        async with talker(client) as one:
            assert (await one.next())["resume"] is None
            await one.turn("a", "x", sampling_params=STALL)
        await until(lambda: not states(client))

    run({"can_resume": False}, tmp_path, work)


def test_a_client_that_does_not_read_stops_its_turn_and_can_go_on(tmp_path: Path) -> None:
    """What it has not read is bounded by the limit of any request."""

    async def work(client: Client) -> None:
        params = {"stage0": {"num_outputs": 400, "output_bytes": 100_000}}
        async with talker(client) as one, talker(client) as other:
            await one.next()
            await other.next()
            await one.turn("a", "x", sampling_params=params)
            await one.next()
            for number in range(10):
                await other.turn(f"{number}", "x")
                await other.until("done")
            assert client.server._omni.measures().traffic.num_begun == 1
            found = await one.until("done")
            assert len(found) == 400
            await one.turn("b", "x")
            await one.until("done")
            for each in (one, other):
                await each.socket.send_json({"type": "close"})
                await each.until("closed")

    run({"cap": 2}, tmp_path, work, max_unread_bytes=400_000)


def test_a_session_needs_a_websocket_and_a_pipeline_that_has_sessions(client: Client) -> None:
    """A plain request opens nothing."""
    status, _, body = client.get("/v1/session")
    assert (status, json.loads(body)["error"]["message"]) == (400, "a session needs a websocket")
    status, _, body = client.post({"prompt": "hi"})
    assert (status, json.loads(body)["error"]["code"]) == (400, "RT062")
