"""`stagemesh run`: start a model, answer one question, stop everything again."""

from __future__ import annotations

import argparse

from stagemesh.spec.command import Command


def _configure(parser: argparse.ArgumentParser) -> None:
    from stagemesh.cli._arguments import add_plan_arguments  # noqa: PLC0415  only when typed

    parser.usage = "%(prog)s MODEL QUESTION [options]"
    add_plan_arguments(parser)
    parser.add_argument("question", metavar="QUESTION", help="what to ask the model")
    parser.add_argument("--output", metavar="FILE", help="write the spoken answer as a WAV file")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=600.0,
        help="give up on the answer after this long, once all stages are ready",
    )
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="write what each stage did when, as a file for trace viewers such as Perfetto",
    )
    parser.add_argument("--json", action="store_true", help="print the answer and report as JSON")


COMMAND = Command(
    name="run",
    summary="start a model or a saved plan, answer one question, stop again",
    configure=_configure,
    run="stagemesh.cli._run:run",
)
