"""The public HTTP interface, asked by a client over a socket."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from stagemesh.errors import OverloadedError
from stagemesh.runtime.transport.token import Secret
from stagemesh.serve.http import tell_errors
from stagemesh.testing.fake_plan import FakeStage, fake_plan, three_stages
from tests.runtime.hashed import hashed
from tests.serve.served import Client, events, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a server of three stages."""
    with serving(fake_plan(three_stages()), tmp_path_factory.mktemp("serve")) as found:
        yield found


def test_outputs_of_all_final_stages_come_as_events_and_then_the_end(client: Client) -> None:
    """Texts of the thinker, data of the vocoder with its bytes, then the report of every stage."""
    status, headers, body = client.post({"prompt": "hi"})
    assert status == 200
    assert headers["Content-Type"] == "text/event-stream"
    found = events(body)
    outputs = [data for kind, data in found if kind == "output"]
    texts = [one["payload"]["meta"]["text"] for one in outputs if one["kind"] == "text"]
    assert texts == ["hi#0", "hi#1", "hi#2"]
    sounds = [one for one in outputs if one["stage"] == "vocoder"]
    assert [len(base64.b64decode(one["payload"]["buffers"][0]["data"])) for one in sounds] == [
        40_000
    ] * 3
    assert [one["final"] for one in sounds] == [False, False, True]
    kind, end = found[-1]
    assert kind == "done"
    assert [row["stage"] for row in end["report"]] == ["thinker", "talker", "vocoder"]
    assert set(end["first_output_s"]) == {"thinker", "vocoder"}


def test_without_a_stream_everything_comes_in_one_document(client: Client) -> None:
    """The same outputs in the same order, with the name that the request was given."""
    status, headers, body = client.post({"prompt": "hi", "stream": False, "request_id": "mine"})
    assert status == 200
    assert headers["Content-Type"].startswith("application/json")
    document = json.loads(body)
    assert document["request_id"] == "mine"
    assert [one["payload"]["meta"]["text"] for one in document["outputs"] if "text" in one["kind"]]
    assert [row["stage"] for row in document["report"]] == ["thinker", "talker", "vocoder"]


def test_progress_of_every_stage_comes_when_it_is_asked_for(client: Client) -> None:
    """Each stage waits, and is finished at the end; without `progress` nothing is said."""
    _, _, body = client.post({"prompt": "hi", "progress": True})
    news = [data for kind, data in events(body) if kind == "progress"]
    assert {one["stage"] for one in news if one["state"] == "waiting"} == {
        "thinker",
        "talker",
        "vocoder",
    }
    _, _, silent = client.post({"prompt": "hi"})
    assert not [data for kind, data in events(silent) if kind == "progress"]


def test_a_payload_goes_in_as_it_comes_out(client: Client) -> None:
    """Metadata and buffers of a prompt reach the first stage."""
    data = base64.b64encode(bytes(range(8))).decode()
    payload = {
        "meta": {"text": "p"},
        "buffers": [{"name": "data", "dtype": "uint8", "shape": [8], "data": data}],
    }
    asked = {"prompt": payload, "sampling_params": {"thinker": {"num_outputs": 1}}}
    _, _, body = client.post(asked)
    assert events(body)[0][1]["payload"]["meta"]["text"] == "p#0"


BAD: list[tuple[str, object, int, str]] = [
    ("not JSON", b"{", 400, "SV001"),
    ("no object", b"[]", 400, "SV001"),
    ("not UTF-8", b'{"prompt": "\xff"}', 400, "SV001"),
    ("deeply nested", b'{"sampling_params": ' + b"[" * 100_000, 400, "SV001"),
    ("nothing", {}, 400, "SV001"),
    ("an unknown name", {"prompt": "hi", "temperature": 1}, 400, "SV001"),
    ("a prompt of a wrong type", {"prompt": 3}, 400, "SV001"),
    ("an empty prompt", {"prompt": " "}, 400, "RT004"),
    ("an unknown stage", {"prompt": "hi", "sampling_params": {"thinkr": {}}}, 400, "RT001"),
    ("a route that is none", {"prompt": "hi", "route": "alice"}, 400, "SV001"),
    ("an unknown name of a route", {"prompt": "hi", "route": {"replica": 1}}, 400, "SV001"),
    ("a cost of nothing", {"prompt": "hi", "route": {"cost": 0}}, 400, "SV001"),
    ("whom nobody knows", {"prompt": "hi", "route": {"follows": "nobody"}}, 400, "RT012"),
    ("a deadline of nothing", {"prompt": "hi", "timeout_s": 0}, 400, "RT007"),
    (
        "a buffer of another size",
        {
            "prompt": {
                "buffers": [{"name": "d", "dtype": "uint8", "shape": [3], "data": "AAAA" * 2}]
            }
        },
        400,
        "RT012",
    ),
    (
        "what a stage refuses",
        {"prompt": "hi", "sampling_params": {"thinker": {"fail_at": "add"}}},
        400,
        "RT012",
    ),
    (
        "what a stage fails at",
        {"prompt": "hi", "sampling_params": {"thinker": {"fail_at": "step"}}},
        503,
        "RT013",
    ),
    (
        "what takes too long",
        {"prompt": "hi", "timeout_s": 0.2, "sampling_params": {"thinker": {"fail_at": "stall"}}},
        504,
        "RT014",
    ),
]


@pytest.mark.parametrize(
    ("body", "status", "code"), [row[1:] for row in BAD], ids=[row[0] for row in BAD]
)
def test_what_fails_before_an_output_has_a_status_of_its_own(
    client: Client, body: object, status: int, code: str
) -> None:
    """The error is one JSON object with its code; 503 says when to try again."""
    found, headers, answer = client.post(body)
    error = json.loads(answer)["error"]
    assert (found, error["code"]) == (status, code), error
    assert ("Retry-After" in headers) == (status == 503)


def test_a_request_says_where_it_would_like_to_be_served(tmp_path: Path) -> None:
    """Equal keys reach one replica, and a companion goes to that of the request it follows."""
    with serving(hashed(3, key="session"), tmp_path) as spread:

        async def replica(session: aiohttp.ClientSession, route: Mapping[str, object]) -> int:
            asked = {"prompt": "hi", "stream": False, "route": route}
            async with session.post(f"{spread.listening.url}/v1/generate", json=asked) as answer:
                return int((await answer.json())["report"][0]["replicas"][0])

        async def ask() -> tuple[set[int], set[int], list[int]]:
            async with aiohttp.ClientSession() as session:
                users = [{"keys": {"session": f"user-{number}"}} for number in range(12)]
                same = {await replica(session, users[0]) for _ in range(4)}
                others = [await replica(session, user) for user in users]
                stalled = {
                    "prompt": "hi",
                    "request_id": "first",
                    "progress": True,
                    "route": users[0],
                    "sampling_params": {"only": {"fail_at": "stall"}},
                }
                url = f"{spread.listening.url}/v1/generate"
                async with session.post(url, json=stalled) as first:
                    await first.content.readuntil(b"}")
                    away = [users[number] for number in range(12) if others[number] not in same]
                    follower = {"follows": "first", "cost": 2, **away[0]}
                    return same, set(others), [await replica(session, follower)]

        same, all_of_them, companion = spread.call(ask())
    assert len(same) == 1
    assert len(all_of_them) > 1
    assert set(companion) == same


def test_requests_beyond_the_queue_limit_are_refused(tmp_path: Path) -> None:
    """One that runs and none that waits: the next one hears when to come again."""
    plan = fake_plan([FakeStage(name="only", final="text", args={"max_num_seqs": 1})])
    with serving(plan, tmp_path, queue_limit=0) as small:

        async def ask() -> tuple[int, bool, str]:
            url = f"{small.listening.url}/v1/generate"
            stalled = {"prompt": "hi", "progress": True}
            stalled |= {"sampling_params": {"only": {"fail_at": "stall"}}}
            async with aiohttp.ClientSession() as session, session.post(url, json=stalled) as one:
                await one.content.readuntil(b"}")
                async with session.post(url, json={"prompt": "hi"}) as other:
                    error = (await other.json())["error"]
                    return other.status, "Retry-After" in other.headers, error["code"]

        assert small.call(ask()) == (503, True, "RT016")


def test_a_full_server_says_when_there_may_be_room() -> None:
    """In whole seconds, as HTTP has them, and never too early."""

    async def refuse(_request: web.Request) -> web.StreamResponse:
        raise OverloadedError("full", retry_after_s=2.3)

    request = make_mocked_request("POST", "/v1/generate")
    answer = asyncio.run(tell_errors(request, refuse))
    assert (answer.status, answer.headers["Retry-After"]) == (503, "3")


def test_what_fails_after_an_output_ends_the_stream_with_an_error(client: Client) -> None:
    """The error names the stage and replica, and that nothing was lost before it."""
    params = {"thinker": {"fail_at": "step", "fail_step": 2}}
    status, _, body = client.post({"prompt": "hi", "sampling_params": params})
    found = events(body)
    assert status == 200
    kind, data = found[-1]
    assert kind == "error"
    assert (data["error"]["stage"], data["error"]["replica"]) == ("thinker", 0)
    assert data["error"]["retryable"] is False


@pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("/v1/generate", 405)])
def test_a_wrong_address_is_told_in_json(client: Client, path: str, status: int) -> None:
    """Unknown paths and methods have the form of all errors."""
    found, _, body = client.get(path)
    assert found == status
    assert json.loads(body)["error"]["code"] == "SV002"


def test_a_client_that_goes_away_cancels_its_request(client: Client) -> None:
    """The stalled request has left every replica soon after the connection is closed."""

    async def named(session: aiohttp.ClientSession, body: Mapping[str, object]) -> int:
        asked = {"prompt": "hi", "request_id": "left", **body}
        async with session.post(f"{client.listening.url}/v1/generate", json=asked) as answer:
            await answer.content.readuntil(b"}")
            if answer.status == 200 and "sampling_params" in body:
                assert await named(session, {}) == 400, "the name is still taken"
            return answer.status

    async def leave() -> None:
        stalled = {"sampling_params": {"vocoder": {"fail_at": "stall"}}}
        async with aiohttp.ClientSession() as session:
            assert await named(session, stalled) == 200
            while await named(session, {}) != 200:
                pass  # the name is free again as soon as the request has left every stage

    client.call(leave())


def test_health_says_that_every_stage_can_serve(client: Client) -> None:
    """200, the state and a row for each stage."""
    status, _, body = client.get("/health")
    assert status == 200
    assert json.loads(body)["state"] == "serving"
    assert [row["stage"] for row in json.loads(body)["stages"]] == ["thinker", "talker", "vocoder"]


def test_a_key_is_asked_for_but_not_for_health(
    client: Client, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without the key and with another one the answer is 401; errors never show it."""
    del client
    plan = fake_plan([FakeStage(name="only", final="text", args={"num_outputs": 1})])
    with serving(plan, tmp_path_factory.mktemp("serve"), key=Secret(token=b"opensesame")) as locked:
        for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "Bearer ä"}):
            status, _, body = locked.post({"prompt": "hi"}, headers)
            assert status == 401
            assert b"opensesame" not in body
        right = {"Authorization": "Bearer opensesame"}
        assert locked.post({"prompt": "hi"}, right)[0] == 200
        assert locked.get("/health")[0] == 200


def test_a_body_that_is_too_long_is_refused(tmp_path: Any) -> None:  # noqa: ANN401  a path
    """413 in the form of all errors, and the server goes on."""
    plan = fake_plan([FakeStage(name="only", final="text", args={"num_outputs": 1})])
    with serving(plan, tmp_path, max_request_bytes=1000) as small:
        status, _, body = small.post({"prompt": "x" * 2000})
        assert status == 413
        assert json.loads(body)["error"]["code"] == "SV002"
        assert small.post({"prompt": "hi"})[0] == 200


def test_many_streams_do_not_mix(client: Client) -> None:
    """Each of forty concurrent requests gets its own outputs in order."""

    async def all_at_once() -> list[bytes]:
        async with aiohttp.ClientSession() as session:

            async def one(prompt: str) -> bytes:
                url = f"{client.listening.url}/v1/generate"
                async with session.post(url, json={"prompt": prompt}) as answer:
                    return await answer.read()

            return await asyncio.gather(*(one(f"p{number}") for number in range(40)))

    for number, body in enumerate(client.call(all_at_once())):
        outputs = [data for kind, data in events(body) if kind == "output"]
        texts = [one["payload"]["meta"]["text"] for one in outputs if one["kind"] == "text"]
        assert texts == [f"p{number}#{index}" for index in range(3)]
