"""The one merge: patches of all layers become one tree, whatever they are about.

Mappings merge by key at any depth, lists and scalars replace, `None` clears what is below it, and a
higher layer wins over a lower one. Within a layer the later patch wins; patches of different paths
never meet. What was cleared is remembered, value by value, with the `null` that took it back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from stagemesh.config.document import Findings
from stagemesh.config.patch import Patch
from stagemesh.config.settings import Sourced
from stagemesh.config.tree import Path, path_text
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Origin
from stagemesh.spec.unset import UNSET


class Branch:
    """A mapping in the making: where it was written last, its members, and what was taken back."""

    __slots__ = ("children", "cleared", "origin")

    def __init__(self, origin: Origin) -> None:
        """Start without members."""
        self.origin = origin
        self.children: dict[str | int, Node] = {}
        self.cleared: dict[Path, Sourced[object]] = {}
        """At the root of a tree: every `null` that holds, by path, with what it cleared."""

    def at(self, *path: str | int) -> Node | None:
        """Return what stands at `path`, or `None`."""
        node: Node | None = self
        for part in path:
            node = node.children.get(part) if isinstance(node, Branch) else None
        return node


Node: TypeAlias = "Branch | Sourced[object]"
"""A mapping, or a value with what it replaced."""


@frozen
class MergedPlace:
    """Tells the places of a merged mapping's values."""

    branch: Branch
    """The mapping."""

    def origin(self, path: Path) -> Origin:
        """Return the place of the value at `path`, or of the nearest mapping around it."""
        depth = len(path)
        while (node := self.branch.at(*path[:depth])) is None:
            depth -= 1
        return node.at(*path[depth:]) if isinstance(node, Sourced) else node.origin

    def key_origin(self, path: Path) -> Origin:
        """Return the place of the value: a key has no other once merged."""
        return self.origin(path)


def merge(patches: Iterable[Patch], findings: Findings) -> Mapping[int | None, Branch]:
    """Merge patches into one tree for the pipeline (`None`) and one for each stage named."""
    roots: dict[int | None, Branch] = {}
    clashes: dict[Origin, Diagnostic] = {}
    for patch in sorted(patches, key=lambda patch: patch.origin.layer):
        root = roots.setdefault(patch.stage_id, Branch(patch.origin))
        _apply(root, patch, clashes)
    findings.extend(clashes.values())
    return roots


def value_of(node: Node) -> object:
    """Return the plain value of a node; `UNSET` when any part of it was refused."""
    if isinstance(node, Sourced):
        return node.value
    built = {key: value_of(child) for key, child in node.children.items()}
    return UNSET if UNSET in built.values() else built


def sourced(node: Node) -> Sourced[object]:
    """Return the value of a node with its origin, and the origins of its members."""
    if isinstance(node, Sourced):
        return node
    return Sourced(
        value=value_of(node),
        origin=node.origin,
        parts={key: sourced(child) for key, child in node.children.items()},
    )


def _apply(root: Branch, patch: Patch, clashes: dict[Origin, Diagnostic]) -> None:
    if patch.took is not None:
        _remember(root, patch)
        return
    branch = root
    for depth, part in enumerate(patch.path[:-1], start=1):
        child = branch.children.get(part)
        if child is None:
            child = branch.children[part] = Branch(patch.origin)
        if not isinstance(child, Branch):
            _clash(patch, patch.path[:depth], child, clashes)
            return
        branch = child
    last = patch.path[-1]
    current = branch.children.get(last)
    if patch.clears:
        _take_back(root, patch, branch.children.pop(last, None))
    elif isinstance(patch.value, Mapping):
        if isinstance(current, Sourced):
            _clash(patch, patch.path, current, clashes)
        elif current is None:
            branch.children[last] = Branch(patch.origin)
        else:
            current.origin = patch.origin
    elif isinstance(current, Branch) and patch.value is not UNSET:
        _clash(patch, patch.path, current, clashes)
    else:
        below = root.cleared.pop(patch.path, None) if current is None else sourced(current)
        branch.children[last] = _replacing(patch, below)


def _take_back(root: Branch, patch: Patch, current: Node | None) -> None:
    """Remember what a `null` clears: each value at its path or below; itself, where there is none.

    What lower layers had cleared already is cleared by this one, too.
    """
    depth = len(patch.path)
    taken: dict[Path, Sourced[object] | None]
    taken = {path: was for path, was in root.cleared.items() if path[:depth] == patch.path}
    if current is not None:
        taken.update(_leaves(patch.path, current))
    for path, was in (taken or {patch.path: None}).items():
        root.cleared[path] = _replacing(patch, was)


def _remember(root: Branch, patch: Patch) -> None:
    """Keep the record of what was taken back before it was merged; no value changes by that."""
    if root.at(*patch.path) is None:  # else a value for every stage holds, and says so itself
        taken, before = _history(patch), root.cleared.get(patch.path)
        below = () if before is None else (_alone(before), *before.superseded)
        if before is not None and before.origin == patch.origin:
            below = before.superseded  # the same `null` has cleared several
        root.cleared[patch.path] = dataclasses.replace(
            taken, superseded=(*taken.superseded, *below)
        )


def _history(patch: Patch) -> Sourced[object]:
    """A patch as a value, with all that it took back."""
    given = Sourced(value=patch.value, origin=patch.origin, clears=patch.value is None)
    if patch.took is None:
        return given
    below = _history(patch.took)
    return dataclasses.replace(given, superseded=(_alone(below), *below.superseded))


def _alone(given: Sourced[object]) -> Sourced[object]:
    return Sourced(value=given.value, origin=given.origin, clears=given.clears)


def _leaves(path: Path, node: Node) -> Iterator[tuple[Path, Sourced[object]]]:
    """Every value of a tree that is no mapping, by its path."""
    if isinstance(node, Sourced):
        yield path, node
        return
    for key, child in node.children.items():
        yield from _leaves((*path, key), child)


def _replacing(patch: Patch, current: Sourced[object] | None) -> Sourced[object]:
    """Return the value of a patch with all that it replaced, also what was cleared in between."""
    below: tuple[Sourced[object], ...] = ()
    if current is not None:
        below = (_alone(current), *current.superseded)
    return Sourced(
        value=patch.value,
        origin=patch.origin,
        superseded=below,
        clears=patch.clears,
        inside=patch.inside,
    )


def _clash(patch: Patch, path: Path, current: Node, clashes: dict[Origin, Diagnostic]) -> None:
    """Tell that a mapping meets a single value; once, however many members the mapping has."""
    if isinstance(current, Sourced) and current.value is UNSET:
        return  # told when it was read
    kinds = ("a mapping", "a single value")
    here, there = kinds if isinstance(current, Sourced) else kinds[::-1]
    told = Diagnostic(
        code="CF014",
        message=f"`{path_text(path)}` is {here} and {there} in two places",
        origin=patch.origin,
        notes=(Note(message=f"{there} here", origin=current.origin),),
        help="mappings merge by key; write `null` in between to clear the lower one",
    )
    clashes.setdefault(current.origin, told)
