"""What `null` took back, by the paths that a plan gives to values.

A `null` says that the default holds; the record of it is what tells that from saying nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final, cast

from stagemesh.config.axis_settings import FORMS
from stagemesh.config.edges import EDGES
from stagemesh.config.extras import EXTRAS
from stagemesh.config.merge import Branch
from stagemesh.config.settings import EdgeSettings, Sourced
from stagemesh.config.tree import Path
from stagemesh.spec.axis import ENABLED, SIZE

_AXES: Final = "axes"
_LABEL: Final = "label"
_OPTIONS: Final = "options"


def cleared_values(root: Branch) -> Mapping[str, Sourced[object]]:
    """Return every `null` that holds in a merged tree, with what it took back."""
    found: dict[str, Sourced[object]] = {}
    for path, taken in root.cleared.items():
        name, is_itself = _name(path)
        if is_itself or name not in found:
            found[name] = as_written(taken) if path == (EDGES,) else taken
    return found


def switched_off(axes: object) -> Mapping[str, Sourced[object]]:
    """Return the axes that somebody has left off, each as the size that is taken back by that."""
    found: dict[str, Sourced[object]] = {}
    for name, node in axes.children.items() if isinstance(axes, Branch) else ():
        off = node.children.get(ENABLED) if isinstance(node, Branch) else None
        if isinstance(off, Sourced) and off.value is False:
            path = f"{_AXES}.{name}.{SIZE}"
            found[path] = Sourced(value=None, origin=off.origin, clears=True)
    return found


def as_written(edges: Sourced[object]) -> Sourced[object]:
    """The list of edges as a file would say it, and so what it replaced."""
    listed = cast("tuple[EdgeSettings, ...] | None", edges.value)
    written = None if listed is None else tuple(edge.entry for edge in listed)
    below = tuple(as_written(old) for old in edges.superseded)
    parts: dict[str | int, Sourced[object]] = {
        number: _sourced(edge) for number, edge in enumerate(listed or ())
    }
    return dataclasses.replace(edges, value=written, superseded=below, parts=parts)


def _sourced(edge: EdgeSettings) -> Sourced[object]:
    """An entry with the places of its members."""
    parts: dict[str | int, Sourced[object]] = {
        key: Sourced(value=value, origin=edge.place(key)) for key, value in edge.entry.items()
    }
    return Sourced(value=edge.entry, origin=edge.origin, parts=parts)


def _name(path: Path) -> tuple[str, bool]:
    """The path in a plan, and whether the value is not only another way to say it."""
    parts = [str(part) for part in path]
    if parts[0] == EXTRAS and len(parts) > 1:
        return ".".join(parts[1:]), False
    if parts[0] != _AXES:
        return ".".join(parts), True
    axis, member = ".".join(parts[:2]), parts[2:3]
    if member == [_OPTIONS]:
        return ".".join([axis, *parts[3:]]), True
    if member in ([], [ENABLED], [FORMS], [_LABEL]):
        return f"{axis}.{SIZE}", False
    return f"{axis}.{member[0]}", True
