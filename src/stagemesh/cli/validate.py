"""`stagemesh validate`: check files without planning anything."""

from __future__ import annotations

import argparse

from stagemesh.spec.command import Command

FORMATS = ("text", "json", "github")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="deploy files, strategy files and saved plans"
    )
    known = parser.add_mutually_exclusive_group()
    known.add_argument(
        "--pipeline",
        metavar="NAME",
        help="check stages, axes and edges against this pipeline, where a file names none",
    )
    known.add_argument(
        "--model", metavar="MODEL", help="the same, for the pipeline of this checkpoint"
    )
    shapes = parser.add_mutually_exclusive_group()
    shapes.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="how findings are shown; `github` makes annotations of a workflow (default: text)",
    )
    shapes.add_argument("--json", action="store_true", help="the same as --format json")


COMMAND = Command(
    name="validate",
    summary="check deploy files, strategy files and saved plans, each by itself",
    configure=_configure,
    run="stagemesh.cli._validate:run",
)
