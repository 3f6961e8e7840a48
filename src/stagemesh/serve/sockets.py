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
    sock = _bound(host, port)
    try:
        sock.listen()
    except OSError as error:
        sock.close()
        raise _taken(host, port, error) from error
    return sock


class SharedPort:
    """A TCP port on which several processes listen, each on a socket of its own.

    The system gives a connection to one of them, by where it comes from: who tries again from
    another port may come to another process. What comes to a process that ends is lost with it,
    and the others go on. The port stays taken while nobody listens.
    """

    def __init__(self, host: str, port: int) -> None:
        """Take the port; raises `DiagnosticError` when that cannot be had.

        It must not be shared with anybody else, so it is bound like any other before it is.
        """
        self._holder = _bound(host, port)
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._holder.getsockname()[:2]
        return host, port

    def door(self) -> socket.socket:
        """Return one more socket that can listen there; raises `OSError`."""
        door = socket.socket(self._holder.family, socket.SOCK_STREAM)
        try:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            door.bind(self._holder.getsockname())
        except OSError:
            door.close()
            raise
        return door

    def close(self) -> None:
        """Let the port go."""
        self._holder.close()


def url_of(host: str, port: int) -> str:
    """Return how clients write where a server listens."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _bound(host: str, port: int) -> socket.socket:
    try:
        # An empty name would stand for every address.
        family, *_, address = socket.getaddrinfo(host or " ", port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise _refused(f"`{host}` is no address to listen on", error, "--host") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise _taken(host, port, error) from error
    return sock


def _taken(host: str, port: int, error: OSError) -> DiagnosticError:
    flag = "--port" if error.errno == errno.EADDRINUSE else "--host"
    return _refused(f"cannot listen on `{host}` port `{port}`", error, flag)


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
