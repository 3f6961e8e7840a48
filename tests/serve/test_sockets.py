"""Where servers listen, and what keeps others out."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from stagemesh.errors import DiagnosticError
from stagemesh.serve.sockets import (
    control_path,
    listen_at,
    listen_on,
    running_servers,
)


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
