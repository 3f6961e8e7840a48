"""How commands reach a running server: over its control socket, with the standard library alone."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from stagemesh.errors import DiagnosticError
from stagemesh.serve.sockets import control_path, running_servers
from stagemesh.spec.diagnostic import Diagnostic

_HELP: Final = "port or control socket of the server; needed where several run on this host"


def add_server_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--server`, which says which of several servers is meant."""
    parser.add_argument("--server", metavar="PORT|PATH", help=_HELP)


def server_of(namespace: argparse.Namespace) -> Path:
    """Return the control socket of the server that is meant."""
    given = namespace.server
    if given is not None:
        return control_path(int(given)) if given.isdecimal() else Path(given)
    found = running_servers()
    if len(found) == 1:
        return found[0]
    if not found:
        message = "no server of yours runs on this host"
        raise _refusal("CL030", message, "`stagemesh serve MODEL` starts one")
    ports = ", ".join(f"`{path.stem}`" for path in found)
    message = f"`{len(found)}` servers of yours run on this host"
    raise _refusal("CL031", message, f"name one with `--server`: {ports}")


def ask(
    server: Path, route: str, body: Mapping[str, object] | None = None, *, timeout_s: float
) -> Mapping[str, Any]:
    """Ask a server and return its answer; its errors are raised as they would be here."""
    connection = _Connection(server, timeout_s)
    try:
        if body is None:
            connection.request("GET", route)
        else:
            connection.request("POST", route, json.dumps(body))
        response = connection.getresponse()
        answer: Mapping[str, Any] = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        message = f"the server at `{server}` does not answer: {reason.lower()}"
        raise _refusal("CL032", message, None) from error
    finally:
        connection.close()
    if response.status != HTTPStatus.OK:
        told = answer["error"]
        rows = told.get("diagnostics", [told])
        raise DiagnosticError(
            [Diagnostic(code=row["code"], message=row["message"], help=row["help"]) for row in rows]
        )
    return answer


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(os.fspath(self._path))


def _refusal(code: str, message: str, help_text: str | None) -> DiagnosticError:
    return DiagnosticError([Diagnostic(code=code, message=message, help=help_text)])
