"""What commands share in showing things: diagnostics, errors, files that cannot be written."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

from stagemesh.config.document import Document
from stagemesh.errors import DiagnosticError, StagemeshError
from stagemesh.plan.table import wrapped
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.origin import Layer, Origin


def columns(stream: TextIO) -> int | None:
    """Return how wide the screen behind a stream is: `COLUMNS`, else its terminal, else unknown."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):  # no terminal, or not even a file
        return None


def show_diagnostics(
    diagnostics: Sequence[Diagnostic],
    documents: Iterable[Document] = (),
    *,
    as_json: bool = False,
) -> None:
    """Show diagnostics on standard error, or as data on standard output."""
    if not diagnostics and not as_json:
        return
    from stagemesh.plan.diagnostics import (  # noqa: PLC0415  most commands find nothing
        diagnostics_json,
        diagnostics_text,
    )

    if as_json:
        sys.stdout.write(diagnostics_json(diagnostics))
    else:
        sys.stderr.write(diagnostics_text(diagnostics, documents, columns(sys.stderr)))


def show_text(text: str) -> None:
    """Write sentences to standard output, broken between words."""
    width = columns(sys.stdout)
    lines = (line for whole in text.splitlines() for line in wrapped(whole, width))
    sys.stdout.write("\n".join([*lines, ""]))


def show_json(value: object) -> None:
    """Write data to standard output."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def diagnostics_of(error: StagemeshError) -> Sequence[Diagnostic]:
    """Return what an error says as diagnostics; the last lines of a stage become notes."""
    if isinstance(error, DiagnosticError):
        return error.diagnostics
    message, *last_lines = str(error).splitlines() or [type(error).__name__]
    notes = tuple(Note(message=line) for line in last_lines)
    return [Diagnostic(code=error.code, message=message, notes=notes, help=error.help)]


def check_writable(path: str, flag: str) -> list[Diagnostic]:
    """Find out whether a file that `flag` asks for could be written, without touching it."""
    target = Path(path)
    folder = target.parent
    if path == "-":
        reason = "standard output shows what is done; `./-` is a file of that name"
    elif target.is_dir():
        reason = "it is a folder"
    elif not folder.is_dir():
        reason = f"the folder `{folder}` does not exist"
    elif not os.access(target if target.exists() else folder, os.W_OK):
        reason = "permission denied"
    else:
        return []
    origin = Origin(layer=Layer.GLOBAL, source=flag)
    return [
        Diagnostic(code="CL001", message=f"`{path}` cannot be written: {reason}", origin=origin)
    ]


def check_not_read(path: str, documents: Iterable[Document], checkpoint: str, flag: str) -> None:
    """Raise `DiagnosticError` for a file that a plan was made from, or in its checkpoint."""
    target = Path(path).resolve()
    read = {Path(each.source).resolve() for each in documents}
    inside = target.is_relative_to(checkpoint)
    if target in read or inside:
        what = "lies in the checkpoint" if inside else "was read for this"
        raise DiagnosticError(
            [
                Diagnostic(
                    code="CL017",
                    message=f"`{path}` {what}, and would be written over",
                    origin=Origin(layer=Layer.GLOBAL, source=flag),
                    help="name another file",
                )
            ]
        )


def write_text(path: str, text: str, flag: str) -> None:
    """Write a file that `flag` asked for; raises `DiagnosticError` when that is not possible."""
    found = check_writable(path, flag)
    if found:
        raise DiagnosticError(found)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiagnosticError(
            [
                Diagnostic(
                    code="CL001",
                    message=f"`{path}` cannot be written: {reason}",
                    origin=Origin(layer=Layer.GLOBAL, source=flag),
                )
            ]
        ) from error
