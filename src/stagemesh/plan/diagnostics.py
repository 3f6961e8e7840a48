"""Diagnostics as people and programs read them: text with the lines at fault, or JSON."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from stagemesh.config.document import Document
from stagemesh.config.variables import masked
from stagemesh.plan.pages import has_page
from stagemesh.plan.table import printable, wrapped
from stagemesh.plan.words import plural
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Origin

_WIDTH: Final = 96
"""Columns of a shown line; longer ones are cut around the place at fault."""
_INDENT: Final = "      "
"""Before the further lines of a sentence."""


def diagnostics_text(
    diagnostics: Sequence[Diagnostic], documents: Iterable[Document], width: int | None = None
) -> str:
    """Render all diagnostics, how many there are and where to read on; empty text for none."""
    if not diagnostics:
        return ""
    texts = {
        document.source: document.text.splitlines()
        for document in documents
        if document.text is not None
    }
    blocks = ["\n".join(_lines(diagnostic, texts, width)) for diagnostic in diagnostics]
    closing = "\n".join(wrapped(_counts(diagnostics), width))
    return "\n\n".join([*blocks, closing]) + "\n"


def diagnostics_json(diagnostics: Iterable[Diagnostic]) -> str:
    """Render all diagnostics as one JSON object with a newline at its end."""
    listed = [diagnostic_data(diagnostic) for diagnostic in diagnostics]
    return json.dumps({"diagnostics": listed}, indent=2, ensure_ascii=False) + "\n"


def _lines(diagnostic: Diagnostic, texts: dict[str, list[str]], width: int | None) -> Iterator[str]:
    told = f"{diagnostic.severity.value}[{diagnostic.code}]: {diagnostic.message}"
    yield from wrapped(told, width, _INDENT)
    if diagnostic.origin is not None:
        path = f"   {diagnostic.origin.path}" if diagnostic.origin.path else ""
        yield from wrapped(f"  --> {diagnostic.origin}{path}", width, _INDENT)
        yield from _frame(diagnostic, texts, width)
    for note in diagnostic.notes:
        place = "" if note.origin is None else f" ({note.origin})"
        yield from wrapped(f"note: {note.message}{place}", width, _INDENT)
    if diagnostic.help is not None:
        yield from wrapped(f"help: {diagnostic.help}", width, _INDENT)


def _frame(diagnostic: Diagnostic, texts: dict[str, list[str]], width: int | None) -> Iterator[str]:
    """The line at fault with a mark below its column."""
    origin = diagnostic.origin
    if origin is None or origin.line is None:
        return
    lines = texts.get(origin.source, [])
    known = lines[origin.line - 1] if 1 <= origin.line <= len(lines) else None
    given = diagnostic.excerpt if known is None else known
    if given is None:
        return
    number, line = str(origin.line), _presentable(given)
    column = 1 if origin.column is None else origin.column
    gutter = len(f"   {number} | ")
    room = _WIDTH if width is None else max(1, min(_WIDTH, width - gutter))
    start = max(0, min(column - room // 2, len(line) - room))
    yield f"   {number} | {line[start : start + room]}".rstrip()
    yield f"   {' ' * len(number)} | {' ' * (column - 1 - start)}^"


@functools.lru_cache(maxsize=32)
def _presentable(line: str) -> str:
    """Return a line of the user's; many findings may stand on one long line."""
    return printable(masked(line))


def _counts(diagnostics: Sequence[Diagnostic]) -> str:
    errors = [diagnostic.code for diagnostic in diagnostics if diagnostic.is_error]
    counted = ((len(errors), "error"), (len(diagnostics) - len(errors), "warning"))
    told = ", ".join(plural(number, word) for number, word in counted if number)
    explained = filter(has_page, [*errors, *(diagnostic.code for diagnostic in diagnostics)])
    code = next(explained, None)
    return told if code is None else f"{told}. `stagemesh explain {code}` tells more."


def diagnostics_github(diagnostics: Iterable[Diagnostic]) -> str:
    """Render all diagnostics as commands of a GitHub workflow, which become annotations."""
    return "".join(f"{_annotation(diagnostic)}\n" for diagnostic in diagnostics)


def _annotation(diagnostic: Diagnostic) -> str:
    origin = diagnostic.origin
    place = {
        "file": None if origin is None or origin.line is None else origin.source,
        "line": None if origin is None else origin.line,
        "col": None if origin is None else origin.column,
        "title": diagnostic.code,
    }
    given = ((name, str(value)) for name, value in place.items() if value is not None)
    properties = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in given)
    notes = (f"note: {note.message}" for note in diagnostic.notes)
    lines = [diagnostic.message, *notes]
    lines += [] if diagnostic.help is None else [f"help: {diagnostic.help}"]
    told = "\n".join(printable(line) for line in lines)
    return f"::{diagnostic.severity.value} {properties}::{_escaped(told, '')}"


def _escaped(text: str, further: str) -> str:
    """Write what would end the part of a workflow command as its code."""
    return "".join(f"%{ord(char):02X}" if char in f"%\r\n{further}" else char for char in text)


def diagnostic_data(diagnostic: Diagnostic) -> dict[str, object]:
    """Return a diagnostic as JSON has it."""
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
