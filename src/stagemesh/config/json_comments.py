"""Finds comments in what is JSON but for them: YAML takes `// ...` and `/* ... */` for text.

So such a file would fail elsewhere than at its comment, or get a key that nobody meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

_STRING: Final = r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)'
_TOKEN: Final = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
"""A text or a comment; one without end goes to the end, so that each character is read once."""
_LAST_COMMA: Final = re.compile(rf"{_STRING}|,(?=\s*[\]}}])", re.DOTALL)
"""A text, or a comma that writers of comments often leave behind the last member."""


def json_comment(text: str) -> tuple[int, int] | None:
    """Return line and column of the first comment in JSON; `None` where it is not JSON with any."""
    if not text.lstrip().startswith(("{", "/")) or ("//" not in text and "/*" not in text):
        return None
    start = next(_comments(text), None)
    if start is None or not _is_json(_LAST_COMMA.sub(_text_alone, _TOKEN.sub(_text_alone, text))):
        return None
    return text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)


def _comments(text: str) -> Iterator[int]:
    return (found.start() for found in _TOKEN.finditer(text) if not found[0].startswith('"'))


def _text_alone(found: re.Match[str]) -> str:
    """Keep a text; a space takes the place of anything else."""
    return found[0] if found[0].startswith('"') else " "


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
