"""`stagemesh plan`: decide and show everything before anything starts."""

from __future__ import annotations

import argparse

from stagemesh.spec.command import Command

FORMS = ("yaml", "vllm-omni", "ray")
"""Names of `plan.export`, which is only loaded when one of them is typed."""


def _configure(parser: argparse.ArgumentParser) -> None:
    from stagemesh.cli._arguments import add_plan_arguments  # noqa: PLC0415  only when typed
    from stagemesh.cli._fit_arguments import add_fit_arguments  # noqa: PLC0415  only when typed

    parser.usage = "%(prog)s MODEL [options]"
    add_plan_arguments(parser)
    parser.add_argument(
        "--values", action="store_true", help="show every rank, group, hook and value as well"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="save the plan, for `run FILE`; with `--as` or `--fit`, what that writes",
    )
    shapes = parser.add_mutually_exclusive_group()
    shapes.add_argument("--json", action="store_true", help="print the plan as JSON")
    shapes.add_argument(
        "--as",
        dest="form",
        choices=FORMS,
        help="print the plan as a flat deploy file, as one of vllm-omni with what that cannot"
        " express, or as placement groups for Ray",
    )
    add_fit_arguments(parser)


COMMAND = Command(
    name="plan",
    summary="show stages, replicas, ranks, devices, edges and where each value comes from",
    configure=_configure,
    run="stagemesh.cli._plan:run",
)
