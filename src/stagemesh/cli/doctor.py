"""`stagemesh doctor`: what this machine has, and what keeps models from running on it."""

from __future__ import annotations

import argparse

from stagemesh.spec.command import Command


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 on warnings, not only on failures"
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")


COMMAND = Command(
    name="doctor",
    summary="check Python, packages, devices, memory, plug-ins and the environment",
    configure=_configure,
    run="stagemesh.cli._doctor:run",
)
