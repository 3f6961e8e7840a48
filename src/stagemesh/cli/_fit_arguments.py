"""The arguments of `stagemesh plan --fit`."""

from __future__ import annotations

import argparse
from typing import Final

from stagemesh.cli._numbers import whole

DEFAULT_TOP: Final = 3
"""Layouts that are shown when nothing says how many."""


def add_fit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what asks for layouts that would fit, rather than for the one that was given."""
    group = parser.add_argument_group("layouts that fit")
    group.add_argument(
        "--fit",
        metavar="N|NxNAME",
        help="propose the best layouts for so many devices; axes that were given stay,"
        " and `-o` writes the strategy file of the first",
    )
    group.add_argument(
        "--fit-top",
        type=_count,
        metavar="N",
        help=f"how many of them ({DEFAULT_TOP})",
    )


def _count(text: str) -> int:
    """Read a number from 1."""
    number = whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
