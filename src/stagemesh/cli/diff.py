"""`stagemesh diff`: what two plans, or the plans of two files, decide otherwise."""

from __future__ import annotations

import argparse

from stagemesh.spec.command import Command


def _configure(parser: argparse.ArgumentParser) -> None:
    from stagemesh.cli._arguments import MODEL_HELP, add_layout_arguments  # noqa: PLC0415

    kinds = "a saved plan, a deploy file or a strategy file"
    parser.add_argument("before", metavar="A", help=kinds)
    parser.add_argument("after", metavar="B", help=f"{kinds}, to compare with A")
    parser.add_argument(
        "--model",
        metavar="MODEL",
        help=f"plan files for this model, and compare the plans: {MODEL_HELP}",
    )
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")
    add_layout_arguments(parser)
    parser.set_defaults(failure=2)


COMMAND = Command(
    name="diff",
    summary="compare two plans or files by what follows from them",
    configure=_configure,
    run="stagemesh.cli._diff:run",
)
