"""`stagemesh scale`: give a stage of a running server more replicas, or fewer."""

from __future__ import annotations

import argparse

from stagemesh.spec.command import Command


def _configure(parser: argparse.ArgumentParser) -> None:
    from stagemesh.cli._control import add_server_argument  # noqa: PLC0415  only when typed

    parser.add_argument("stage", metavar="STAGE", help="name of the stage")
    parser.add_argument("replicas", metavar="N", type=int, help="replicas that it shall have")
    add_server_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the new state as JSON")


COMMAND = Command(
    name="scale",
    summary="give a stage of a running server more replicas, or fewer",
    configure=_configure,
    run="stagemesh.cli._scale:run",
)
