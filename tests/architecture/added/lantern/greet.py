"""The command `greet`, and its work."""

from __future__ import annotations

import argparse
import sys

from stagemesh.spec.command import Command


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")


def run(namespace: argparse.Namespace) -> int:
    """Greet."""
    sys.stdout.write(f"hello {namespace.name}\n")
    return 0


COMMAND = Command(
    name="greet",
    summary="a command of a third party",
    configure=_configure,
    run="lantern.greet:run",
)
