"""References: `module:attribute` strings that are resolved only where the thing is needed."""

from __future__ import annotations

import importlib


def resolve(reference: str | None) -> object:
    """Import and return what `module:attribute` names.

    Raises `ValueError` for a malformed reference or none at all, `ImportError` or `AttributeError`
    for a dead one.
    """
    module_name, separator, attribute = (reference or "").partition(":")
    if not separator or not module_name or not attribute:
        message = f"`{reference}` is no reference of the form `module:attribute`"
        raise ValueError(message)
    target: object = importlib.import_module(module_name)
    for part in attribute.split("."):
        target = getattr(target, part)
    return target
