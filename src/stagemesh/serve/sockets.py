"""Where a server listens, and how a command on the same host finds its control socket.

Control sockets lie in a folder that only their user can enter, named after the port of the public
interface: `$XDG_RUNTIME_DIR/stagemesh/8000.sock`. Nobody else can connect, so they need no token.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path
from typing import Final

from stagemesh.errors import DiagnosticError
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Layer, Origin

_PRIVATE: Final = 0o700
_SUFFIX: Final = ".sock"
_CONNECT_S: Final = 2.0


def listen_on(host: str, port: int) -> socket.socket:
    """Listen on a TCP port; raises `DiagnosticError` when that cannot be had."""
    try:
        # An empty name would stand for every address.
        family, *_, address = socket.getaddrinfo(host or " ", port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise _refused(f"`{host}` is no address to listen on", error, "--host") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen()
    except OSError as error:
        sock.close()
        flag = "--port" if error.errno == errno.EADDRINUSE else "--host"
        raise _refused(f"cannot listen on `{host}` port `{port}`", error, flag) from error
    return sock


def control_path(port: int) -> Path:
    """Where the control socket of the server on that port lies."""
    return _folder() / f"{port}{_SUFFIX}"


def listen_at(path: Path) -> socket.socket:
    """Listen on a Unix socket of this user alone, in place of one whose server is gone."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        _check_private(path.parent)
        if path.exists() and not _answers(path):
            path.unlink()
        sock.bind(os.fspath(path))
        sock.listen()
    except (OSError, DiagnosticError) as error:
        sock.close()
        if isinstance(error, DiagnosticError):
            raise
        raise _refused(f"cannot listen on `{path}`", error, "--control-socket") from error
    return sock


def running_servers() -> list[Path]:
    """Return the control sockets of this user's servers on this host."""
    return [path for path in sorted(_folder().glob(f"*{_SUFFIX}")) if _answers(path)]


def _folder() -> Path:
    given = os.environ.get("XDG_RUNTIME_DIR")
    return Path(given) / "stagemesh" if given else Path(f"/tmp/stagemesh-{os.getuid()}")  # noqa: S108  checked


def _check_private(folder: Path) -> None:
    found = folder.stat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & ~_PRIVATE:
        told = f"`{folder}` can be entered by other users"
        raise DiagnosticError([_diagnostic(told, "--control-socket")])


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_S)
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
    return True


def _refused(told: str, error: OSError, flag: str) -> DiagnosticError:
    reason = (error.strerror or str(error)).lower()
    return DiagnosticError([_diagnostic(f"{told}: {reason}", flag)])


def _diagnostic(message: str, flag: str) -> Diagnostic:
    origin = Origin(layer=Layer.GLOBAL, source=flag)
    help_text = f"choose another with `{flag}`"
    return Diagnostic(code="SV004", message=message, help=help_text, origin=origin)
