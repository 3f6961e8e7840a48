"""The arguments of the Python surface: each of the type that it says, or told by its name."""

from __future__ import annotations

from stagemesh.config.check import wrong_type
from stagemesh.config.place import Nowhere, Place, Run
from stagemesh.errors import DiagnosticError
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer


@frozen
class Argument:
    """One argument of one call."""

    name: str
    """Its name in the call."""
    value: object
    """What was given."""
    kinds: tuple[type, ...]
    """The types that it may have."""
    expected: str
    """The same in words, as a message has them."""


def check_arguments(function: str, error: type[DiagnosticError], *arguments: Argument) -> None:
    """Raise `error` with every argument of `function` that has another type than it says."""
    run = Run()
    for each in arguments:
        if not isinstance(each.value, each.kinds):
            where = Nowhere(source=f"{function}({each.name}=...)", layer=Layer.GLOBAL)
            place = Place(located=where).child(each.name)
            wrong_type(each.value, place, run, each.expected)
    if run.findings:
        raise error(run.findings)
