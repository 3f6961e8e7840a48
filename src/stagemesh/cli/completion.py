"""`stagemesh completion`: the script that lets a shell complete the command line."""

from __future__ import annotations

import argparse

from stagemesh.spec.command import Command

SHELLS = ("bash", "fish", "zsh")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="shell that completes")
    parser.add_argument("--json", action="store_true", help="print the script as JSON")


COMMAND = Command(
    name="completion",
    summary="print a script that completes commands, flags and names in a shell",
    configure=_configure,
    run="stagemesh.cli._completion:run",
)
