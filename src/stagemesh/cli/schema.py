"""`stagemesh schema`: the JSON Schema of a kind of file, for editors and other programs."""

from __future__ import annotations

import argparse

from stagemesh.spec.command import Command

KINDS = ("deploy", "strategy")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=KINDS, help="kind of file")
    parser.add_argument("--json", action="store_true", help="print as JSON, which is the only form")


COMMAND = Command(
    name="schema",
    summary="print the JSON Schema of deploy or strategy files",
    configure=_configure,
    run="stagemesh.cli._schema:run",
)
