"""Numbers in messages."""

from __future__ import annotations

import pytest

from stagemesh.spec.diagnostic import counted


@pytest.mark.parametrize(
    ("number", "text"), [(0, "`0` devices"), (1, "`1` device"), (2, "`2` devices")]
)
def test_one_thing_is_counted_in_the_singular(number: int, text: str) -> None:
    """Any other number takes the plural."""
    assert counted(number, "device") == text
