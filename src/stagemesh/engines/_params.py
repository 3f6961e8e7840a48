"""Request parameters: a mapping on the wire, an instance of what declares them to those inside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from stagemesh.config.check import check
from stagemesh.config.place import Nowhere, Place
from stagemesh.spec.unset import Unset

Params = TypeVar("Params")


def typed_params(declared: type[Params], given: Mapping[str, object]) -> Params:
    """Build the parameters; raises `ValueError` with everything that is wrong with them."""
    checked = check(declared, given, Place(located=Nowhere(source="request"), label="params"))
    if isinstance(checked.value, Unset):
        raise ValueError(  # noqa: TRY004  # the user's value, whatever is wrong with it
            "; ".join(found.message for found in checked.diagnostics)
        )
    return checked.value
