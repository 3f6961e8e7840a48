"""Clients that do not read their sockets: their request stops, others are served."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from stagemesh.testing.fake_plan import FakeStage, fake_plan
from tests.serve.served import Client, serving

pytestmark = pytest.mark.slow

NUM, BYTES, STEP = 400, 100_000, 200
"""Outputs of a request, far more than sockets hold, and one that nobody comes to unread."""
_RECEIVE_BYTES = 16 * 1024


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a server that keeps little for who does not read."""
    plan = fake_plan(
        [
            FakeStage(name="thinker", args={"num_outputs": NUM, "output_bytes": BYTES}),
            FakeStage(name="vocoder", final="data"),
        ]
    )
    folder = tmp_path_factory.mktemp("serve")
    with serving(plan, folder, max_unread_bytes=4 * BYTES) as found:
        yield found


async def asked(client: Client, body: object) -> tuple[asyncio.AbstractEventLoop, socket.socket]:
    """Ask over a socket with little room, and read nothing."""
    loop = asyncio.get_running_loop()
    where = urlsplit(client.listening.url)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
    sock.settimeout(0.0)
    await loop.sock_connect(sock, (where.hostname, where.port))
    data = json.dumps(body).encode()
    head = f"POST /v1/generate HTTP/1.1\r\nHost: here\r\nContent-Length: {len(data)}\r\n\r\n"
    await loop.sock_sendall(sock, head.encode() + data)
    return loop, sock


async def whole(client: Client) -> None:
    """Another request, from the first output to the last."""
    few = {"thinker": {"num_outputs": 5}}
    body = json.dumps({"prompt": "hi", "sampling_params": few, "stream": False}).encode()
    status, _, answer = await client._ask("POST", "/v1/generate", body, None)
    assert status == 200
    assert len(json.loads(answer)["outputs"]) == 5


def test_a_client_that_does_not_read_stops_its_stages(client: Client) -> None:
    """The first stage comes to the output at which it fails when the client reads on."""

    async def work() -> bytes:
        failing = {"thinker": {"fail_at": "step", "fail_step": STEP}}
        body = {"prompt": "hi", "request_id": "slow", "sampling_params": failing}
        loop, sock = await asked(client, body)
        with sock:
            for _ in range(10):
                await whole(client)
            # a name is taken for as long as its request has not ended
            again = json.dumps({"prompt": "hi", "request_id": "slow"}).encode()
            status, _, _ = await client._ask("POST", "/v1/generate", again, None)
            assert status == 400
            got = bytearray()
            while b"event: error" not in got[-200_000:]:
                data = await loop.sock_recv(sock, 1 << 20)
                assert data, "it says how it ended"
                got += data
            return bytes(got)

    told = client.call(work())
    outputs = told.count(b"event: output")
    assert 4 < outputs <= STEP
    assert b"the program fails at `step`" in told


def test_a_client_that_goes_without_reading_frees_its_stages(client: Client) -> None:
    """Its request is cancelled wherever it is on hold."""

    async def work() -> None:
        _, sock = await asked(client, {"prompt": "hi", "request_id": "gone"})
        with sock:
            await whole(client)
        again = {"prompt": "hi", "request_id": "gone", "stream": False}
        again["sampling_params"] = {"thinker": {"num_outputs": 1}}
        status = 400
        while status != 200:
            body = json.dumps(again).encode()
            status, _, _ = await client._ask("POST", "/v1/generate", body, None)

    client.call(work())
