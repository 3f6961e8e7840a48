"""`stagemesh top`: watch the stages of a running server."""

from __future__ import annotations

import argparse

from stagemesh.spec.command import Command


def _configure(parser: argparse.ArgumentParser) -> None:
    from stagemesh.cli._control import add_server_argument  # noqa: PLC0415  only when typed

    add_server_argument(parser)
    parser.add_argument("--once", action="store_true", help="show the state once and stop")
    parser.add_argument("--json", action="store_true", help="print the state as JSON and stop")


COMMAND = Command(
    name="top",
    summary="watch the stages of a running server",
    configure=_configure,
    run="stagemesh.cli._top:run",
)
