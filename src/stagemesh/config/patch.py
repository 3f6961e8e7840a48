"""Patches: the one form that files, flags and arguments become."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final

from stagemesh.config.check import hints
from stagemesh.config.place import Place
from stagemesh.config.tree import Path
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Origin

NULL_IS_A_VALUE: Final = "null is a value"
"""Goes into `Annotated`: for this field `null` says something, and clears nothing."""

UNKNOWN_STAGE: Final = -1
"""Stage of what was said about one that is not there: it is checked, and then means nothing."""


@frozen
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
    keeps_null: bool = False
    """Whether `None` is a value here and clears nothing."""
    took: Patch | None = field(default=None, compare=False)
    """What a `null` around the path took back, such as that of all stages: the record of it."""

    inside: Place | None = field(default=None, compare=False, repr=False)
    """For a list: the place that its items are told from."""

    @property
    def clears(self) -> bool:
        """Whether it takes back what lower layers say."""
        return self.value is None and not self.keeps_null and self.took is None


def of_stages(patches: Iterable[Patch]) -> Iterator[Patch]:
    """Return the patches but for those of stages that are not there."""
    return (patch for patch in patches if patch.stage_id != UNKNOWN_STAGE)


def taken_back(patches: Iterable[Patch], origin: Origin) -> list[Patch]:
    """Return the record of patches that a `null` at `origin` takes back, as if never said."""
    return [
        Patch(stage_id=patch.stage_id, path=patch.path, value=None, origin=origin, took=patch)
        for patch in patches
        if not isinstance(patch.value, Mapping)
    ]


def patches_of(
    stage_id: int | None,
    path: Path,
    value: object,
    place: Place,
    annotation: object = object,
) -> Iterator[Patch]:
    """Cut a value into patches, one for each member at any depth.

    `annotation` is the type of the value, for members whose `null` is a value.
    """
    if isinstance(value, Mapping):
        yield Patch(stage_id=stage_id, path=path, value={}, origin=place.origin)
        types_of = _members(annotation)
        for key, member in value.items():
            inner = types_of.get(str(key), object)
            yield from patches_of(stage_id, (*path, key), member, place.child(key), inner)
    else:
        keeps_null = NULL_IS_A_VALUE in getattr(annotation, "__metadata__", ())
        yield Patch(
            stage_id=stage_id,
            path=path,
            value=value,
            origin=place.origin,
            keeps_null=keeps_null,
            inside=place if isinstance(value, tuple) else None,
        )


def _members(annotation: object) -> Mapping[str, object]:
    """Types of the members of a dataclass; nothing for other types."""
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return hints(annotation)
    return {}
