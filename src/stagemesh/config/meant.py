"""What somebody meant who wrote text where a number, or `true` or `false`, is wanted."""

from __future__ import annotations

import re
from typing import Final

_WORDS: Final = {
    **dict.fromkeys(("yes", "y", "on", "true"), "true"),
    **dict.fromkeys(("no", "n", "off", "false"), "false"),
}
_NUMBER: Final = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?")
_GROUPED: Final = re.compile(r"[-+]?[0-9]+(_[0-9]+)+(\.[0-9]+)?")
_BINARY: Final = re.compile("[-+]?0b[01]{1,60}")
_CLOCK: Final = re.compile("([0-9]{1,9}):([0-5]?[0-9])(?::([0-5]?[0-9]))?")


def meant_by(value: object, expected: str) -> str | None:
    """Return the remedy for a value that is not `expected`, where it can be told."""
    if not isinstance(value, str):
        return None
    if "`true`" in expected and value.lower() in _WORDS:
        return f"write `{_WORDS[value.lower()]}`"
    return _number_in(value) if "number" in expected else None


def _number_in(text: str) -> str | None:
    """Return the remedy for a number that stands in a text."""
    if _NUMBER.fullmatch(text):
        return f"write `{text}` without quotes"
    if _GROUPED.fullmatch(text):
        return f"write `{text.replace('_', '')}`"
    if _BINARY.fullmatch(text):
        return f"write `{int(text, 0)}`"
    clock = _CLOCK.fullmatch(text)
    if clock is None:
        return None
    total = 0
    for unit in (part for part in clock.groups() if part is not None):
        total = total * 60 + int(unit)
    return f"write one number, such as `{total}`"
