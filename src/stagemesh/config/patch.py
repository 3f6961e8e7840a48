"""Patches: the one form that files, flags and arguments become."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from stagemesh.config.place import Place
from stagemesh.config.tree import Path
from stagemesh.spec.origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One value for one path.

    A mapping is patched member by member; its own patch holds an empty mapping. `UNSET` says that a
    value was given and refused, so that nobody calls it missing.
    """

    stage_id: int | None
    """The stage, or `None` for the whole pipeline."""
    path: Path
    """Path of the value, such as `("axes", "tp", "size")`."""
    value: object
    """The value; `None` clears."""
    origin: Origin = field(compare=False)
    """Where it was written, and the layer."""


def patches_of(stage_id: int | None, path: Path, value: object, place: Place) -> Iterator[Patch]:
    """Cut a value into patches, one for each member at any depth."""
    if isinstance(value, Mapping):
        yield Patch(stage_id=stage_id, path=path, value={}, origin=place.origin)
        for key, member in value.items():
            yield from patches_of(stage_id, (*path, key), member, place.child(key))
    else:
        yield Patch(stage_id=stage_id, path=path, value=value, origin=place.origin)
