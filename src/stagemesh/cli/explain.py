"""`stagemesh explain`: what a code, an axis or a field means, and where a value comes from."""

from __future__ import annotations

import argparse

from stagemesh.spec.command import Command


def _configure(parser: argparse.ArgumentParser) -> None:
    from stagemesh.cli._arguments import add_layout_arguments  # noqa: PLC0415  only when typed

    parser.add_argument(
        "what",
        metavar="WHAT",
        help="a code such as `AX022`, `axis` for all of them or with the name of one, a field such"
        " as `max_num_seqs`, or with MODEL a value such as `thinker.tp` or all of `edges`",
    )
    parser.add_argument(
        "model",
        metavar="MODEL|NAME",
        nargs="?",
        help="checkpoint or saved plan whose value is explained; behind `axis` its name",
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")
    add_layout_arguments(parser)


COMMAND = Command(
    name="explain",
    summary="explain an error code, an axis, a field, or where a value of a plan comes from",
    configure=_configure,
    run="stagemesh.cli._explain:run",
)
