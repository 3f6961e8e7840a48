"""What was meant by text where a number, or `true` or `false`, is wanted."""

from __future__ import annotations

import pytest

from stagemesh.config.check import check
from stagemesh.config.place import Nowhere, Place

HERE = Place(located=Nowhere(source="here"), label="x")


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        (bool, "yes", "write `true`"),
        (bool, "On", "write `true`"),
        (bool, "off", "write `false`"),
        (bool, "False", "write `false`"),
        (bool, "maybe", None),
        (int, "yes", None),
        (int, "2", "write `2` without quotes"),
        (float, "-0.5", "write `-0.5` without quotes"),
        (int, "1_000", "write `1000`"),
        (int | None, "0b11", "write `3`"),
        (float, "1:30", "write one number, such as `90`"),
        (int, "1:00:30", "write one number, such as `3630`"),
        (int, "1:75", None),
        (int, "010", "write `10`"),
        (float, "-0_7", "write `-7`"),
        (float, "00.5", "write `00.5` without quotes"),
        (int, "1.5", None),
        (int | float, "1.5", "write `1.5` without quotes"),
        (int, "9" * 41, None),
        (int, "many", None),
        (int, True, None),
        (list[int], "2", None),
    ],
)
def test_what_was_meant_is_offered(kind: type, text: object, told: str | None) -> None:
    """Never more than what the text says, nor what would be refused; else there is no remedy."""
    [found] = check(kind, text, HERE).diagnostics
    assert (found.code, found.help) == ("CF012", told)
