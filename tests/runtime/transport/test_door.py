"""Where streams come in."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stagemesh.errors import StartupError
from stagemesh.runtime.transport import door as door_module
from stagemesh.runtime.transport.door import Door, Patience, dial, dial_until, listen, listen_unix
from stagemesh.runtime.transport.handshake import Guest, Hello, Refused, Verdict, introduce
from stagemesh.runtime.transport.token import Secret
from stagemesh.testing.connector_conformance import open_fds
from tests.waiting import WAIT_S

SECRET = Secret(token=b"a secret of some length")
HELLO = Hello(role="link", stage=0, replica=0, incarnation=0, fingerprint="")


class Host:
    """A door and who has come in."""

    def __init__(self, listener: socket.socket) -> None:
        """Open it; needs a running loop."""
        self.guests: asyncio.Queue[Guest] = asyncio.Queue()
        self.door = Door(listener, SECRET, self.judge, self.guests.put_nowait)

    @staticmethod
    def judge(hello: Hello) -> Verdict:
        """Take all stages but one."""
        return Verdict(number=hello.stage, reason="not this one" if hello.stage == 9 else None)


def at_door(work: Callable[[Host], Coroutine[Any, Any, None]]) -> None:
    """Run `work` with a door on a loopback address, and see that nothing is left open."""

    async def run() -> None:
        before = open_fds()
        host = Host(listen("127.0.0.2", 0))
        try:
            await asyncio.wait_for(work(host), WAIT_S)
        finally:
            await host.door.close()
            while not host.guests.empty():
                host.guests.get_nowait().sock.close()
        assert open_fds() == before

    asyncio.run(run())


def test_who_knows_the_secret_comes_in() -> None:
    """The stream is handed over, and goes on where the first words ended."""

    async def work(host: Host) -> None:
        sock, number = await dial("127.0.0.2", host.door.port, HELLO, SECRET)
        guest = await host.guests.get()
        loop = asyncio.get_running_loop()
        with sock, guest.sock:
            assert (number, guest.hello.role) == (0, "link")
            await loop.sock_sendall(sock, b"on")
            assert await loop.sock_recv(guest.sock, 9) == b"on"
            for end in (sock, guest.sock):
                assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5000
                assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    at_door(work)


def test_who_does_not_is_turned_away_and_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing reaches the owner of the door; the token is in no line."""

    async def work(host: Host) -> None:
        for secret, hello in ((Secret(), HELLO), (SECRET, Hello(**{**as_dict(HELLO), "stage": 9}))):
            with pytest.raises(Refused):
                await dial("127.0.0.2", host.door.port, hello, secret)
        assert host.guests.empty()

    at_door(work)
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "a stream was turned away: it was not taken: the token is not the same",
        "a stream was turned away: it was not taken: not this one",
    ]
    assert "secret" not in repr(SECRET)


def test_noise_leaves_the_door_open_for_others() -> None:
    """Strangers that talk nonsense, or go, cost nobody else anything."""

    async def work(host: Host) -> None:
        loop = asyncio.get_running_loop()
        for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x01\xc1", b"\x00\x00", b""):
            with socket.create_connection(("127.0.0.2", host.door.port)) as stranger:
                stranger.sendall(noise)
                stranger.shutdown(socket.SHUT_WR)
                stranger.setblocking(False)  # noqa: FBT003  signature of the standard library
                with contextlib.suppress(ConnectionResetError):  # something was left unread
                    assert await loop.sock_recv(stranger, 9) == b""
        sock, _ = await dial("127.0.0.2", host.door.port, HELLO, SECRET)
        sock.close()

    at_door(work)


def test_a_crowd_of_strangers_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many may be in the middle of their first words."""
    monkeypatch.setattr(door_module, "MAX_STRANGERS", 2)

    async def work(host: Host) -> None:
        loop = asyncio.get_running_loop()
        crowd = [socket.create_connection(("127.0.0.2", host.door.port)) for _ in range(3)]
        crowd[2].setblocking(False)  # noqa: FBT003  signature of the standard library
        assert await loop.sock_recv(crowd[2], 1) == b""
        for stranger in crowd:
            stranger.close()
        sock, _ = await dial_until(
            Patience(absent_s=20, busy_s=20), "127.0.0.2", host.door.port, HELLO, SECRET
        )
        sock.close()

    at_door(work)


def test_too_many_open_files_are_waited_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The door comes back to who waits once there are descriptors again."""
    monkeypatch.setattr(door_module, "_PAUSE_S", 0.0)

    async def work(host: Host) -> None:
        real, failures = host.door._listener, [OSError(24, "too many open files")]

        class Full:
            def accept(self) -> object:
                if failures:
                    raise failures.pop()
                return real.accept()

            def __getattr__(self, name: str) -> object:
                return getattr(real, name)

        host.door._listener = Full()  # type: ignore[assignment]
        sock, _ = await dial("127.0.0.2", host.door.port, HELLO, SECRET)
        sock.close()
        assert failures == []

    at_door(work)
    assert caplog.messages == ["nobody can be let in: too many open files"]


def test_nobody_there_is_waited_for_until_the_deadline() -> None:
    """Then it is told what was found the last time."""

    async def run() -> None:
        closed = listen("127.0.0.2", 0)
        port = closed.getsockname()[1]
        closed.close()
        with pytest.raises(ConnectionRefusedError):
            await dial_until(Patience(absent_s=0.05, busy_s=20), "127.0.0.2", port, HELLO, SECRET)

    asyncio.run(run())


def test_an_address_that_cannot_be_had_is_told() -> None:
    """A port in use, and an address that is none of this host."""
    with listen("127.0.0.2", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=f"cannot listen at `127.0.0.2:{port}`: .* in use"):
            listen("127.0.0.2", port)
    with pytest.raises(StartupError, match=r"cannot listen at `192\.0\.2\.1:0`"):
        listen("192.0.2.1", 0)
    with pytest.raises(StartupError, match="is no address to listen at"):
        listen("no such host", 0)


def test_a_path_is_for_its_user_alone(tmp_path: Path) -> None:
    """The folder and the socket are closed to others, and a folder that is not is refused."""

    async def run() -> None:
        path = tmp_path / "run" / "door"
        host = Host(listen_unix(path))
        assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.setblocking(False)  # noqa: FBT003  signature of the standard library
            await asyncio.get_running_loop().sock_connect(sock, str(path))
            assert await introduce(sock, HELLO, SECRET.token) == 0
            (await host.guests.get()).sock.close()
        await host.door.close()

    asyncio.run(run())
    tmp_path.chmod(0o755)
    with pytest.raises(StartupError, match="only its owner may use"):
        listen_unix(tmp_path / "door")


def test_another_user_is_turned_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who runs as somebody else is not even heard."""

    async def run() -> None:
        host = Host(listen_unix(tmp_path / "run" / "door"))
        uid = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.setblocking(False)  # noqa: FBT003  signature of the standard library
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, str(tmp_path / "run" / "door"))
            assert await loop.sock_recv(sock, 1) == b""
        await host.door.close()

    asyncio.run(run())


def as_dict(hello: Hello) -> dict[str, Any]:
    """The fields of a hello."""
    return {name: getattr(hello, name) for name in hello.__struct_fields__}
