"""Lines that a stage writes about one request, so that who reads them knows which.

The name of the request goes before the line, between two control characters that no other output
begins with, as a JSON string so that it has no line break.
"""

from __future__ import annotations

import json
from typing import Final

_BEGIN: Final = "\x1e"
_END: Final = "\x1f"


def about(request: str, text: str) -> str:
    """Return `text` with every line about `request`."""
    head = f"{_BEGIN}{json.dumps(request)}{_END}"
    return "".join(f"{head}{line}\n" for line in text.splitlines())


def read(line: str) -> tuple[str | None, str]:
    """Return the request that a line is about, if any, and the line without it."""
    if not line.startswith(_BEGIN):
        return None, line
    head, found, rest = line[len(_BEGIN) :].partition(_END)
    try:
        request = json.loads(head)
    except ValueError:
        return None, line
    return (request, rest) if found and isinstance(request, str) else (None, line)
