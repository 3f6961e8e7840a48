"""The work of `stagemesh serve`: everything is checked before anything is started."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from stagemesh.cli._log import show_log
from stagemesh.cli._making import made_from
from stagemesh.cli._screen import columns, show_diagnostics
from stagemesh.config.launch_rules import flag_name
from stagemesh.errors import DiagnosticError
from stagemesh.plan.render import plan_summary
from stagemesh.plan.values import Plan
from stagemesh.runtime.checks import check_executable
from stagemesh.runtime.descriptors import raise_file_limit
from stagemesh.runtime.launchers.worker import run_headless
from stagemesh.runtime.transport.token import USERS, check_bind, idle_permission, read_api_key
from stagemesh.serve.frontends.parent import FrontendLog, Frontends
from stagemesh.serve.logs import FORMATS, RequestLog
from stagemesh.serve.server import Listening, ServeOptions, Server
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Layer, Origin

_log: Final = logging.getLogger("stagemesh.serve")
_MAX_PORT: Final = 65535
_OF_USERS: Final = (
    *("host", "port", "api_key_file", "control_socket"),
    *("queue_limit", "max_request_bytes", "max_unread_bytes"),
)
"""Options about those who ask, whom a headless start does not hear."""


def run(namespace: argparse.Namespace) -> int:
    """Serve until a signal; data goes over HTTP, so everything here is on standard error."""
    made = made_from(namespace)
    show_diagnostics(made.diagnostics, made.documents)
    if made.plan is None:
        return 1
    raise_file_limit()
    tell = _teller(namespace)
    typed = {name: said for name, said in vars(namespace).items() if name in _OF_USERS}
    if made.plan.launch.headless:
        return _work(made.plan, typed, tell)
    options = _options(typed)
    is_insecure = made.plan.launch.insecure_no_token
    found = [
        *_wrong_numbers(options),
        *check_bind(options.host, options.key, is_insecure=is_insecure, places=USERS),
        *check_executable(made.plan),
    ]
    if found:
        raise DiagnosticError(found)
    show_diagnostics(idle_permission(made.plan.launch, options.host, options.key), ())
    server = _server(made.plan, options, namespace)
    tell(plan_summary(made.plan, columns(sys.stderr)))
    asyncio.run(_serve(server, tell))
    tell("stopped")
    return 0


def _server(plan: Plan, options: ServeOptions, namespace: argparse.Namespace) -> Server | Frontends:
    """One process that serves, or the parent of several."""
    if plan.launch.api_server_count > 1:
        return Frontends(
            plan, options, FrontendLog(form=namespace.log_format, debug=namespace.debug)
        )
    server = Server(plan, options)
    if namespace.log_format is not None:
        server.observers.add(RequestLog())
    return server


def _options(typed: Mapping[str, Any]) -> ServeOptions:
    """What was typed, over the defaults; raises `DiagnosticError` when the key cannot be read."""
    control = typed.get("control_socket")
    others = {name: typed[name] for name in typed if name not in ("api_key_file", "control_socket")}
    return ServeOptions(
        key=read_api_key(typed.get("api_key_file")),
        control=None if control is None else Path(control),
        **others,
    )


def _work(plan: Plan, typed: Mapping[str, object], tell: Callable[[str], None]) -> int:
    """Run replicas for a head elsewhere, which alone is asked: no port is opened for users."""
    if typed:
        raise DiagnosticError([_of_users(flag_name(name)) for name in typed])
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


async def _serve(server: Server | Frontends, tell: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)

    def ready(listening: Listening) -> None:
        tell(f"serving at {listening.url}, Ctrl-C stops")

    await server.run(ready)


def _of_users(flag: str) -> Diagnostic:
    return Diagnostic(
        code="SV006",
        message=f"`{flag}` says nothing to a `--headless` start: users do not reach it",
        origin=Origin(layer=Layer.GLOBAL, source=flag),
        help="give it to the start that runs the orchestrator, or leave it out",
    )


def _wrong_numbers(options: ServeOptions) -> Iterator[Diagnostic]:
    if not 0 <= options.port <= _MAX_PORT:
        told = f"a port is from 0 to {_MAX_PORT}: `{options.port}`"
        yield _wrong_number(told, "--port")
    if options.queue_limit is not None and options.queue_limit < 0:
        told = f"requests that may wait are at least 0: `{options.queue_limit}`"
        yield _wrong_number(told, "--queue-limit")
    for flag, number in (
        ("--max-request-bytes", options.max_request_bytes),
        ("--max-unread-bytes", options.max_unread_bytes),
    ):
        if number < 1:
            yield _wrong_number(f"bytes are at least 1: `{number}`", flag)


def _wrong_number(message: str, flag: str) -> Diagnostic:
    origin = Origin(layer=Layer.GLOBAL, source=flag)
    return Diagnostic(code="SV005", message=message, origin=origin)
