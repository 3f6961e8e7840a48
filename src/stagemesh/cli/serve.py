"""`stagemesh serve`: start a model and serve requests over HTTP until told to stop."""

from __future__ import annotations

import argparse

from stagemesh.spec.command import Command


def _configure(parser: argparse.ArgumentParser) -> None:
    from stagemesh.cli._arguments import add_plan_arguments  # noqa: PLC0415  only when typed

    parser.usage = "%(prog)s MODEL [options]"
    add_plan_arguments(parser)
    # What is not typed does not appear in the namespace: headless starts refuse what is.
    group = parser.add_argument_group("server", argument_default=argparse.SUPPRESS)
    group.add_argument("--host", metavar="ADDRESS", help="address to listen on")
    group.add_argument(
        "--port", metavar="N", type=int, help="port to listen on; 0 takes any that is free"
    )
    group.add_argument(
        "--api-key-file",
        metavar="FILE",
        help="holds the key that requests must bear; else $STAGEMESH_API_KEY does",
    )
    group.add_argument(
        "--control-socket",
        metavar="PATH",
        help="where `scale` and `top` reach this server; found by its port when left out",
    )
    group.add_argument(
        "--log-format",
        choices=("text", "json"),
        default=None,
        help="log every request on standard error, as lines of text or of JSON",
    )
    group.add_argument(
        "--queue-limit",
        metavar="N",
        type=int,
        help="requests that may wait beyond those that the first stage serves at a time",
    )
    group.add_argument(
        "--max-request-bytes", metavar="N", type=int, help="longest body of a request"
    )
    group.add_argument(
        "--max-unread-bytes",
        metavar="N",
        type=int,
        help="output of a request that may wait for a client that does not read",
    )


COMMAND = Command(
    name="serve",
    summary="start a model or a saved plan and serve requests over HTTP",
    configure=_configure,
    run="stagemesh.cli._serve:run",
)
