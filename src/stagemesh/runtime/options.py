"""Values of a plan, which are JSON, as instances of the options type that a plug-in declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from stagemesh.config.check import check
from stagemesh.config.place import Nowhere, Place
from stagemesh.errors import DiagnosticError
from stagemesh.spec.unset import Unset

Options = TypeVar("Options")


def typed(declared: type[Options], values: Mapping[str, object]) -> Options:
    """Build the options; raises `DiagnosticError` when they are not what is declared."""
    checked = check(declared, dict(values), Place(located=Nowhere(source="plan")))
    if isinstance(checked.value, Unset):
        raise DiagnosticError(checked.diagnostics)
    return checked.value
