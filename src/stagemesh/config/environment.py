"""Every environment variable that stagemesh reads. No other file reads one of ours.

At most ten, all with the prefix `STAGEMESH_`; a malformed one is an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stagemesh.errors import DiagnosticError
from stagemesh.spec.diagnostic import Diagnostic, did_you_mean
from stagemesh.spec.origin import Layer, Origin

PREFIX: Final = "STAGEMESH_"

TOKEN: Final = "STAGEMESH_TOKEN"
"""The variable that holds a secret: its value is shown to nobody."""
API_KEY: Final = "STAGEMESH_API_KEY"
"""Another one."""

VARIABLES: Final[Mapping[str, str]] = {
    API_KEY: "what requests to a server must bear, unless `--api-key-file` holds it",
    "STAGEMESH_CACHE": "absolute folder of assembled checkpoints; by default `~/.cache/stagemesh`",
    TOKEN: "secret that all starts of one model share; `--omni-token-file` goes before it",
}
"""What each variable is for."""


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the cache folder, which need not exist; raises `DiagnosticError` when malformed."""
    text = environ.get("STAGEMESH_CACHE")
    if text is None:
        return Path.home() / ".cache" / "stagemesh"
    folder = Path(text).expanduser() if text else Path()
    if not folder.is_absolute():
        raise DiagnosticError(
            [_malformed("STAGEMESH_CACHE", text, "write an absolute path, or unset the variable")]
        )
    return folder


def check_environment(environ: Mapping[str, str] = os.environ) -> tuple[Diagnostic, ...]:
    """Find our variables that do not exist and those that are malformed."""
    found = [
        Diagnostic(
            code="CF051",
            message=f"unknown environment variable `{name}`",
            origin=_origin(name),
            help=did_you_mean(name, VARIABLES),
        )
        for name in sorted(environ)
        if name.startswith(PREFIX) and name not in VARIABLES
    ]
    try:
        cache_folder(environ)
    except DiagnosticError as error:
        found.extend(error.diagnostics)
    return tuple(found)


def _malformed(name: str, value: str, help_text: str) -> Diagnostic:
    return Diagnostic(
        code="CF050",
        message=f"environment variable `{name}` is malformed: `{value}`",
        origin=_origin(name),
        help=help_text,
    )


def _origin(name: str) -> Origin:
    return Origin(layer=Layer.GLOBAL, source=f"environment variable {name}")
