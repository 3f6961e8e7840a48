"""The public surface is listed once, and the list is true."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

import pytest

import stagemesh


def surface_findings(module: ModuleType) -> list[str]:
    """Say where `__all__`, the names the module knows and what can be imported differ."""
    listed: list[str] = list(module.__all__)
    known = set(vars(module).get("_PUBLIC", {}))
    found = [f"`{name}` is listed but not known" for name in listed if name not in known]
    found += [f"`{name}` is known but not listed" for name in sorted(known - set(listed))]
    for name in listed:
        try:
            target = getattr(module, name)
        except (AttributeError, ImportError) as error:
            found.append(f"`{name}` cannot be imported: {error}")
            continue
        if not inspect.getdoc(target):
            found.append(f"`{name}` has no docstring")
    if listed != sorted(listed):
        found.append("`__all__` is not in order")
    return found


def test_every_public_name_is_listed_and_importable() -> None:
    """`__all__` is exactly what a user can import, and each name explains itself."""
    assert surface_findings(stagemesh) == []


def test_a_star_import_gives_exactly_the_public_names() -> None:
    """Nothing else of the package is in its public namespace."""
    public = {name for name in vars(stagemesh) if not name.startswith("_")}
    modules = {name for name in public if inspect.ismodule(vars(stagemesh)[name])}
    assert public - modules - set(stagemesh.__all__) <= {"annotations", "resolve", "TYPE_CHECKING"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    """The lazy lookup does not invent names."""
    with pytest.raises(AttributeError, match="no attribute `Nothing`"):
        importlib.import_module("stagemesh").Nothing  # noqa: B018 - the access is what raises


def test_a_wrong_public_surface_is_caught() -> None:
    """A listed name that does not exist and an unlisted one are findings."""
    module = ModuleType("planted")
    vars(module).update(__all__=["Ghost"], _PUBLIC={"Hidden": "x:y"})
    found = surface_findings(module)
    assert "`Ghost` is listed but not known" in found
    assert "`Hidden` is known but not listed" in found
    assert any(finding.startswith("`Ghost` cannot be imported") for finding in found)
