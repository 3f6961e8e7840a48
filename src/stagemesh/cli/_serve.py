"""The work of `stagemesh serve`: everything is checked before anything is started."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stagemesh.cli._making import made_from
from stagemesh.cli._screen import columns, show_diagnostics
from stagemesh.config.environment import api_key
from stagemesh.errors import DiagnosticError
from stagemesh.plan.render import plan_summary
from stagemesh.runtime.checks import check_runnable
from stagemesh.serve.server import Listening, ServeOptions, Server
from stagemesh.serve.sockets import is_loopback
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Layer, Origin

_MAX_PORT: Final = 65535


def run(namespace: argparse.Namespace) -> int:
    """Serve until a signal; data goes over HTTP, so everything here is on standard error."""
    made = made_from(namespace)
    show_diagnostics(made.diagnostics, made.documents)
    if made.plan is None:
        return 1
    key, found = _key(namespace)
    found += [*_wrong_numbers(namespace), *_open_to_all(namespace, key)]
    found += check_runnable(made.plan)
    if found:
        raise DiagnosticError(found)
    options = ServeOptions(
        host=namespace.host,
        port=namespace.port,
        token=key,
        control=None if namespace.control_socket is None else Path(namespace.control_socket),
        max_request_bytes=namespace.max_request_bytes,
    )
    sys.stderr.write(f"{plan_summary(made.plan, columns(sys.stderr))}\n")
    asyncio.run(_serve(Server(made.plan, options)))
    sys.stderr.write("stopped\n")
    return 0


async def _serve(server: Server) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    await server.run(_ready)


def _ready(listening: Listening) -> None:
    sys.stderr.write(f"serving at {listening.url}, Ctrl-C stops\n")


def _key(namespace: argparse.Namespace) -> tuple[str | None, list[Diagnostic]]:
    """Return the key that requests must bear, and what is wrong with the file that holds it."""
    if namespace.api_key_file is None:
        return api_key(), []
    path = Path(namespace.api_key_file)
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        told = f"`{path}` cannot be read: {(reason or str(error)).lower()}"
        return None, [_diagnostic(told, "--api-key-file", code="SV005")]
    if key:
        return key, []
    return None, [_diagnostic(f"`{path}` holds no key", "--api-key-file", code="SV005")]


def _wrong_numbers(namespace: argparse.Namespace) -> Iterator[Diagnostic]:
    if not 0 <= namespace.port <= _MAX_PORT:
        told = f"a port is from 0 to {_MAX_PORT}: `{namespace.port}`"
        yield _diagnostic(told, "--port", code="SV006")
    if namespace.max_request_bytes < 1:
        told = f"bytes are at least 1: `{namespace.max_request_bytes}`"
        yield _diagnostic(told, "--max-request-bytes", code="SV006")


def _open_to_all(namespace: argparse.Namespace, key: str | None) -> Iterator[Diagnostic]:
    if key is None and not namespace.insecure_no_token and not is_loopback(namespace.host):
        yield Diagnostic(
            code="SV007",
            message=f"other hosts could use the model at `{namespace.host}` without a key",
            origin=Origin(layer=Layer.GLOBAL, source="--host"),
            help="give `--api-key-file`, or `--insecure-no-token` if that is wanted",
        )


def _diagnostic(message: str, flag: str, *, code: str) -> Diagnostic:
    return Diagnostic(code=code, message=message, origin=Origin(layer=Layer.GLOBAL, source=flag))
