"""Numbers as arguments of commands: one that files refuse means nothing here either."""

from __future__ import annotations

import argparse
import re
from typing import Final

_WHOLE: Final = re.compile(r"[-+]?[0-9]+", re.ASCII)
_FIRST_ZERO: Final = re.compile(r"[-+]?0[0-9]")


def whole(text: str) -> int:
    """Read a whole number; raises what the parser tells with the name of the argument."""
    if not _WHOLE.fullmatch(text):
        message = f"must be a whole number, got `{text}`"
        raise argparse.ArgumentTypeError(message)
    _refuse_leading_zero(text)
    return int(text)


def decimal(text: str) -> float:
    """Read a number; raises what the parser tells with the name of the argument."""
    _refuse_leading_zero(text)
    return float(text)


def _refuse_leading_zero(text: str) -> None:
    """Some take a zero in front for base 8."""
    if not _FIRST_ZERO.match(text):
        return
    from stagemesh.config.tree import leading_zero  # noqa: PLC0415  only when needed
    from stagemesh.config.yaml_core import is_ambiguous  # noqa: PLC0415  only when needed

    if is_ambiguous(text):
        message, remedy = leading_zero(text, may_be_text=False)
        raise argparse.ArgumentTypeError(f"{message}: {remedy}")
