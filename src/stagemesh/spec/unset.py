"""`UNSET`: the one marker for "not given". `None`, `1`, `0` and `-1` are values, never markers."""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal


class Unset(Enum):
    """The type of `UNSET`; an enum so that type checkers can narrow it."""

    UNSET = "unset"

    def __repr__(self) -> str:
        """Show as the name people write."""
        return "UNSET"

    def __bool__(self) -> Literal[False]:
        """Be falsy, though code should compare with `is UNSET`."""
        return False


UNSET: Final = Unset.UNSET
