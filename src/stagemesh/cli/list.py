"""`stagemesh list`: what is installed."""

from __future__ import annotations

import argparse

from stagemesh.spec.command import Command

KINDS = ("models", "axes", "connectors", "engines")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=KINDS, help="what to list")
    parser.add_argument("--json", action="store_true", help="print as JSON")


COMMAND = Command(
    name="list",
    summary="list installed models, axes, connectors or engines",
    configure=_configure,
    run="stagemesh.cli._list:run",
)
