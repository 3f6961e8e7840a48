"""The work of `stagemesh serve`: everything is checked before anything is started."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from stagemesh.cli._log import show_log
from stagemesh.cli._making import made_from
from stagemesh.cli._screen import columns, show_diagnostics
from stagemesh.errors import DiagnosticError
from stagemesh.plan.render import plan_summary
from stagemesh.plan.values import Plan
from stagemesh.runtime.checks import check_runnable
from stagemesh.runtime.launchers.worker import run_headless
from stagemesh.runtime.transport.token import USERS, check_bind, idle_permission, read_api_key
from stagemesh.serve.logs import FORMATS, RequestLog
from stagemesh.serve.server import Listening, ServeOptions, Server
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Layer, Origin

_log: Final = logging.getLogger("stagemesh.serve")
_MAX_PORT: Final = 65535


def run(namespace: argparse.Namespace) -> int:
    """Serve until a signal; data goes over HTTP, so everything here is on standard error."""
    made = made_from(namespace)
    show_diagnostics(made.diagnostics, made.documents)
    if made.plan is None:
        return 1
    tell = _teller(namespace)
    if made.plan.launch.headless:
        return _work(made.plan, tell)
    key = read_api_key(namespace.api_key_file)
    is_insecure = made.plan.launch.insecure_no_token
    found = [
        *_wrong_numbers(namespace),
        *check_bind(namespace.host, key, is_insecure=is_insecure, places=USERS),
        *check_runnable(made.plan),
    ]
    if found:
        raise DiagnosticError(found)
    show_diagnostics(idle_permission(made.plan.launch, namespace.host, key), ())
    options = ServeOptions(
        host=namespace.host,
        port=namespace.port,
        key=key,
        control=None if namespace.control_socket is None else Path(namespace.control_socket),
        max_request_bytes=namespace.max_request_bytes,
        max_unread_bytes=namespace.max_unread_bytes,
    )
    server = Server(made.plan, options)
    if namespace.log_format is not None:
        server.observers.add(RequestLog())
    tell(plan_summary(made.plan, columns(sys.stderr)))
    asyncio.run(_serve(server, tell))
    tell("stopped")
    return 0


def _work(plan: Plan, tell: Callable[[str], None]) -> int:
    """Run replicas for a head elsewhere, which alone is asked: no port is opened for users."""
    tell(plan_summary(plan, columns(sys.stderr)))
    asyncio.run(run_headless(plan))
    tell("stopped")
    return 0


def _teller(namespace: argparse.Namespace) -> Callable[[str], None]:
    """How things are said here; where a form of the log was asked for, everything has it."""
    if namespace.log_format is None:
        return _shown
    level = logging.DEBUG if namespace.debug else logging.INFO
    show_log(FORMATS[namespace.log_format](), level)
    return _log.info


def _shown(text: str) -> None:
    sys.stderr.write(f"{text}\n")


async def _serve(server: Server, tell: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)

    def ready(listening: Listening) -> None:
        tell(f"serving at {listening.url}, Ctrl-C stops")

    await server.run(ready)


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
