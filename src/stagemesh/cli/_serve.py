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
from stagemesh.errors import DiagnosticError
from stagemesh.plan.render import plan_summary
from stagemesh.plan.values import Plan
from stagemesh.runtime.checks import check_runnable
from stagemesh.runtime.launchers.worker import run_headless
from stagemesh.runtime.transport.token import USERS, check_bind, read_api_key
from stagemesh.serve.server import Listening, ServeOptions, Server
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Layer, Origin

_MAX_PORT: Final = 65535


def run(namespace: argparse.Namespace) -> int:
    """Serve until a signal; data goes over HTTP, so everything here is on standard error."""
    made = made_from(namespace)
    show_diagnostics(made.diagnostics, made.documents)
    if made.plan is None:
        return 1
    if made.plan.launch.headless:
        return _work(made.plan)
    key = read_api_key(namespace.api_key_file)
    is_insecure = made.plan.launch.insecure_no_token
    found = [
        *_wrong_numbers(namespace),
        *check_bind(namespace.host, key, is_insecure=is_insecure, places=USERS),
        *check_runnable(made.plan),
    ]
    if found:
        raise DiagnosticError(found)
    options = ServeOptions(
        host=namespace.host,
        port=namespace.port,
        key=key,
        control=None if namespace.control_socket is None else Path(namespace.control_socket),
        max_request_bytes=namespace.max_request_bytes,
        max_unread_bytes=namespace.max_unread_bytes,
    )
    sys.stderr.write(f"{plan_summary(made.plan, columns(sys.stderr))}\n")
    asyncio.run(_serve(Server(made.plan, options)))
    sys.stderr.write("stopped\n")
    return 0


def _work(plan: Plan) -> int:
    """Run replicas for a head elsewhere, which alone is asked: no port is opened for users."""
    sys.stderr.write(f"{plan_summary(plan, columns(sys.stderr))}\n")
    asyncio.run(run_headless(plan))
    sys.stderr.write("stopped\n")
    return 0


async def _serve(server: Server) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    await server.run(_ready)


def _ready(listening: Listening) -> None:
    sys.stderr.write(f"serving at {listening.url}, Ctrl-C stops\n")


def _wrong_numbers(namespace: argparse.Namespace) -> Iterator[Diagnostic]:
    if not 0 <= namespace.port <= _MAX_PORT:
        told = f"a port is from 0 to {_MAX_PORT}: `{namespace.port}`"
        yield _diagnostic(told, "--port")
    for flag, number in (
        ("--max-request-bytes", namespace.max_request_bytes),
        ("--max-unread-bytes", namespace.max_unread_bytes),
    ):
        if number < 1:
            yield _diagnostic(f"bytes are at least 1: `{number}`", flag)


def _diagnostic(message: str, flag: str) -> Diagnostic:
    origin = Origin(layer=Layer.GLOBAL, source=flag)
    return Diagnostic(code="SV005", message=message, origin=origin)
