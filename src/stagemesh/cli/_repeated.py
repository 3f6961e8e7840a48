"""What is said of an option that takes one value and was given a second one."""

from __future__ import annotations

from typing import TypeAlias

from stagemesh.config.tree import quoted
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.origin import Layer, Origin

Typed: TypeAlias = tuple[str, object]
"""An option as it was typed, and its value."""


def given_again(first: Typed, second: Typed) -> Diagnostic:
    """Tell both places; values that are equal are told, too: one of them says nothing."""
    return Diagnostic(
        code="CL014",
        message=f"`{second[0]}` is given again, and takes one value",
        origin=_origin(second),
        notes=(Note(message="first given here", origin=_origin(first)),),
        help="leave one of them out",
    )


def _origin(typed: Typed) -> Origin:
    flag, value = typed
    return Origin(layer=Layer.GLOBAL, source=f"{flag} {quoted(value).strip('`')}")
