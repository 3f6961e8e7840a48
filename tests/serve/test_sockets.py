"""Where servers listen, and what keeps others out."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from stagemesh.errors import DiagnosticError
from stagemesh.serve.sockets import (
    SharedPort,
    control_path,
    listen_at,
    listen_on,
    running_servers,
    url_of,
)
from stagemesh.testing.connector_conformance import open_fds


def test_a_port_that_is_taken_is_told() -> None:
    """The finding names address, port and flag."""
    with listen_on("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DiagnosticError) as caught:
            listen_on("127.0.0.1", port)
    [found] = caught.value.diagnostics
    assert (found.code, str(port) in found.message) == ("SV004", True)
    assert found.origin is not None
    assert found.origin.source == "--port"


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid", ""])
def test_an_address_of_no_interface_is_told(host: str) -> None:
    """It is another host's, no name at all, or empty."""
    with pytest.raises(DiagnosticError) as caught:
        listen_on(host, 0)
    assert [found.code for found in caught.value.diagnostics] == ["SV004"]


def test_servers_of_this_user_are_found_and_dead_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket file whose server is gone is no server, and gives way to the next one."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert running_servers() == []
    with listen_at(control_path(8000)), listen_at(control_path(8001)):
        assert [path.name for path in running_servers()] == ["8000.sock", "8001.sock"]
    assert running_servers() == []
    with listen_at(control_path(8000)):
        assert [path.name for path in running_servers()] == ["8000.sock"]


def test_a_control_socket_that_is_in_use_is_not_taken_over(tmp_path: Path) -> None:
    """The second server is refused, and the first one can still be reached."""
    path = tmp_path / "private" / "own.sock"
    with listen_at(path):
        with pytest.raises(DiagnosticError, match="cannot listen"):
            listen_at(path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    """They could put a socket of their own there."""
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    with pytest.raises(DiagnosticError, match="other users"):
        listen_at(folder / "own.sock")


def test_without_a_runtime_folder_of_the_user_sockets_lie_in_one_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is named after the user."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4321)
    assert control_path(8000) == Path("/tmp/stagemesh-4321/8000.sock")  # noqa: S108  only compared


def test_connections_to_a_shared_port_go_to_all_who_listen() -> None:
    """One that stops listening loses its part to the others."""
    port = SharedPort("127.0.0.1", 0)
    doors = [port.door() for _ in range(2)]
    for door in doors:
        door.listen(128)
        door.settimeout(0)
    with contextlib.ExitStack() as clients:
        for _ in range(60):
            clients.enter_context(socket.create_connection(port.address))
        assert all(_accepted(door) > 0 for door in doors)
        doors[0].close()
        for _ in range(10):
            clients.enter_context(socket.create_connection(port.address))
        assert _accepted(doors[1]) == 10
    doors[1].close()
    port.close()


def test_a_shared_port_is_taken_even_while_nobody_listens() -> None:
    """Neither a server that is alone gets it, nor another that would share it."""
    port = SharedPort("127.0.0.1", 0)
    address = port.address
    try:
        for take in (listen_on, SharedPort):
            with pytest.raises(DiagnosticError, match="already in use"):
                take(*address)
        with port.door() as door:
            door.listen()
            with pytest.raises(DiagnosticError, match="already in use"):
                SharedPort(*address)
    finally:
        port.close()
    with listen_on(*address):
        pass


def test_there_is_no_door_to_a_port_that_was_let_go() -> None:
    """Nothing stays open either."""
    port = SharedPort("127.0.0.1", 0)
    port.close()
    before = open_fds()
    with pytest.raises(OSError, match="descriptor"):
        port.door()
    assert open_fds() == before


@pytest.mark.parametrize(
    ("host", "url"), [("127.0.0.1", "http://127.0.0.1:80"), ("::1", "http://[::1]:80")]
)
def test_an_address_of_version_6_is_written_in_brackets(host: str, url: str) -> None:
    """As RFC 3986 wants it."""
    assert url_of(host, 80) == url


def _accepted(door: socket.socket) -> int:
    """Take what waits at a door; return how many there were."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            door.accept()[0].close()
            count += 1
    return count
