"""Diagnostics as people and programs read them: text with the lines at fault, or JSON."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from stagemesh.config.document import Document
from stagemesh.config.variables import masked
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Origin

_WIDTH: Final = 96
"""Columns of a shown line; longer ones are cut around the place at fault."""


def diagnostics_text(diagnostics: Sequence[Diagnostic], documents: Iterable[Document]) -> str:
    """Render all diagnostics and how many there are; empty text for none."""
    if not diagnostics:
        return ""
    texts = {
        document.source: document.text.splitlines()
        for document in documents
        if document.text is not None
    }
    blocks = ["\n".join(_lines(diagnostic, texts)) for diagnostic in diagnostics]
    return "\n\n".join([*blocks, _counts(diagnostics)]) + "\n"


def diagnostics_json(diagnostics: Iterable[Diagnostic]) -> str:
    """Render all diagnostics as one JSON object with a newline at its end."""
    listed = [_mapping(diagnostic) for diagnostic in diagnostics]
    return json.dumps({"diagnostics": listed}, indent=2, ensure_ascii=False) + "\n"


def _lines(diagnostic: Diagnostic, texts: dict[str, list[str]]) -> Iterator[str]:
    yield f"{diagnostic.severity.value}[{diagnostic.code}]: {printable(diagnostic.message)}"
    if diagnostic.origin is not None:
        path = f"   {printable(diagnostic.origin.path)}" if diagnostic.origin.path else ""
        yield f"  --> {printable(str(diagnostic.origin))}{path}"
        yield from _frame(diagnostic.origin, texts)
    for note in diagnostic.notes:
        place = "" if note.origin is None else f" ({note.origin})"
        yield f"note: {printable(note.message + place)}"
    if diagnostic.help is not None:
        yield f"help: {printable(diagnostic.help)}"


def _frame(origin: Origin, texts: dict[str, list[str]]) -> Iterator[str]:
    """The line at fault with a mark below its column."""
    lines = texts.get(origin.source, [])
    if origin.line is None or not 1 <= origin.line <= len(lines):
        return
    number, line = str(origin.line), _presentable(lines[origin.line - 1])
    column = 1 if origin.column is None else origin.column
    start = max(0, min(column - _WIDTH // 2, len(line) - _WIDTH))
    yield f"   {number} | {line[start : start + _WIDTH]}".rstrip()
    yield f"   {' ' * len(number)} | {' ' * (column - 1 - start)}^"


@functools.lru_cache(maxsize=32)
def _presentable(line: str) -> str:
    """Return a line of the user's; many findings may stand on one long line."""
    return printable(masked(line))


def printable(text: str) -> str:
    """Replace what would move the cursor or change the terminal."""
    return "".join(char if char.isprintable() else " " if char == "\t" else "?" for char in text)


def _counts(diagnostics: Sequence[Diagnostic]) -> str:
    errors = sum(diagnostic.is_error for diagnostic in diagnostics)
    counted = ((errors, "error"), (len(diagnostics) - errors, "warning"))
    return ", ".join(plural(number, word) for number, word in counted if number)


def plural(number: int, word: str) -> str:
    """Say `1 error`, `2 errors`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _mapping(diagnostic: Diagnostic) -> dict[str, object]:
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity.value,
        "message": diagnostic.message,
        "origin": _place(diagnostic.origin),
        "notes": [
            {"message": note.message, "origin": _place(note.origin)} for note in diagnostic.notes
        ],
        "help": diagnostic.help,
    }


def _place(origin: Origin | None) -> dict[str, object] | None:
    if origin is None:
        return None
    return {
        "layer": origin.layer.name.lower(),
        "source": origin.source,
        "line": origin.line,
        "column": origin.column,
        "path": origin.path,
    }
