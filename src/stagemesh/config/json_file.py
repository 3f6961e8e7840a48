"""Reads a JSON file of a checkpoint with care: every way to fail is one diagnostic, none hangs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from stagemesh.errors import DiagnosticError
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.pipeline import JsonObject

MIB: Final = 2**20
_LIMIT: Final = 4 * MIB
"""Bytes of a configuration file; published ones have some ten thousand."""


@frozen
class JsonFile:
    """A JSON file that holds an object."""

    content: JsonObject
    """The object."""
    digest: str
    """SHA-256 of the file, as hexadecimal text."""


def read_json_file(file: Path, name: str, limit: int = _LIMIT) -> JsonFile | None:
    """Read a file that messages call `name`; `None` when there is none.

    Raises `DiagnosticError` for one that cannot be read, is too large or holds no JSON object.
    """
    origin = Origin(layer=Layer.PIPELINE, source=str(file))
    content = _read(file, name, limit, origin)
    if content is None:
        return None
    try:
        parsed: object = json.loads(content)
    except json.JSONDecodeError as error:
        place = dataclasses.replace(origin, line=error.lineno, column=error.colno)
        found = Diagnostic(
            code="MD006",
            message=f"`{name}` is not valid JSON: {error.msg.lower()}",
            origin=place,
            excerpt=error.doc.split("\n")[error.lineno - 1],
        )
        raise DiagnosticError((found,)) from None
    except (ValueError, RecursionError):  # no UTF-8 text, or beyond what the parser takes
        _refuse("MD006", f"`{name}` is not valid JSON", origin)
    if not isinstance(parsed, Mapping):
        _refuse("MD006", f"`{name}` must hold an object", origin)
    return JsonFile(content=parsed, digest=hashlib.sha256(content).hexdigest())


def _read(file: Path, name: str, limit: int, origin: Origin) -> bytes | None:
    try:
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a pipe would never answer
            _refuse("MD005", f"`{name}` cannot be read: it is no regular file", origin)
        with file.open("rb") as stream:
            content = stream.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        _refuse("MD005", f"`{name}` cannot be read: {error.strerror}", origin)
    if len(content) > limit:
        _refuse("MD034", f"`{name}` is larger than `{limit // MIB}` MiB", origin)
    return content


def _refuse(code: str, message: str, origin: Origin) -> NoReturn:
    raise DiagnosticError((Diagnostic(code=code, message=message, origin=origin),))
