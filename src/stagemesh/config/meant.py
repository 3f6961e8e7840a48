"""What somebody meant who wrote text where a number, or `true` or `false`, is wanted."""

from __future__ import annotations

import re
from typing import Final

from stagemesh.config.yaml_core import is_ambiguous

_LONGEST: Final = 40
"""Characters of a text that may be a number; longer ones are none that anybody meant."""
_WORDS: Final = {
    **dict.fromkeys(("yes", "y", "on", "true"), "true"),
    **dict.fromkeys(("no", "n", "off", "false"), "false"),
}
_NUMBER: Final = re.compile(r"[-+]?[0-9]+(_[0-9]+)*(\.[0-9]+)?")
_BINARY: Final = re.compile("[-+]?0b[01]+")
_CLOCK: Final = re.compile("([0-9]+):([0-5]?[0-9])(?::([0-5]?[0-9]))?")


def meant_by(value: object, expected: str) -> str | None:
    """Return the remedy for a value that is not `expected`, where it can be told."""
    if not isinstance(value, str) or len(value) > _LONGEST:
        return None
    if "`true`" in expected and value.lower() in _WORDS:
        return f"write `{_WORDS[value.lower()]}`"
    if "number" not in expected:
        return None
    return _number_in(value, is_whole="a number" not in expected)


def _number_in(text: str, *, is_whole: bool) -> str | None:
    """Return the remedy for a number that stands in a text, as far as it is taken."""
    if _NUMBER.fullmatch(text):
        return None if is_whole and "." in text else _as_number(text)
    if _BINARY.fullmatch(text):
        return f"write `{int(text, 0)}`"
    clock = _CLOCK.fullmatch(text)
    if clock is None:
        return None
    total = 0
    for unit in (part for part in clock.groups() if part is not None):
        total = total * 60 + int(unit)
    return f"write one number, such as `{total}`"


def _as_number(text: str) -> str:
    number = text.replace("_", "")
    if is_ambiguous(number):  # the number alone would be refused as well
        number = str(int(number))
    return f"write `{number}` without quotes" if number == text else f"write `{number}`"
