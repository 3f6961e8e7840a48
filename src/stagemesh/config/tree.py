"""Plain values out of YAML nodes, JSON pairs and Python objects, with the positions of all of them.

A tree holds text, numbers, booleans, `None`, tuples, and dictionaries with text or whole numbers as
keys. Whatever else a source says (a cycle, a tag, a key given twice) is told as a problem, never
raised, and leaves `UNSET`: given, but already reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final, TypeAlias

import yaml

from stagemesh.config.yaml_core import is_ambiguous, number, whole_number
from stagemesh.spec.frozen import frozen
from stagemesh.spec.unset import UNSET

Path: TypeAlias = tuple[str | int, ...]
"""Keys and list positions from the root to a value."""

Position: TypeAlias = tuple[int, int]
"""Line and column, from 1."""

Tagged: TypeAlias = tuple[type[yaml.Node], Position]
"""Kind and place of a value with a tag; a mapping and its first key may share the place."""

MAX_DEPTH: Final = 64
"""Levels of nesting, far more than any file of ours has."""
MAX_NUMBER: Final = 2**63
"""Magnitude below which whole numbers stay; Python would take any, at any cost."""
_LONGEST_NUMBER: Final = 64
"""Characters of a written number; converting one of a million takes minutes."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
MAX_VALUES: Final = 20_000
"""Values of one source, so that a few nested YAML aliases cannot fill the memory. JSON has none."""

_SCALARS: Final = (str, bool, int, float, type(None))
_PREFIX: Final = "tag:yaml.org,2002:"
_MERGE: Final = f"{_PREFIX}merge"
_NODES: Final[Mapping[type[yaml.Event], type[yaml.Node]]] = {
    yaml.ScalarEvent: yaml.ScalarNode,
    yaml.SequenceStartEvent: yaml.SequenceNode,
    yaml.MappingStartEvent: yaml.MappingNode,
}
_CONSTANTS: Final = {"None": "null", "True": "true", "False": "false"}


class Pairs(list[tuple[str, object]]):
    """The members of a JSON object as written, so that a key given twice is seen."""


@frozen
class Problem:
    """Something in a source that no tree can hold."""

    code: str
    """Code of the diagnostic."""
    message: str
    """What is wrong."""
    path: Path
    """Where in the tree."""
    position: Position | None = None
    """Where in the text."""
    first: Position | None = None
    """Where the first of two equal keys stands."""
    help: str | None = None
    """What to write instead, where that can be told."""


@frozen
class Tree:
    """A value with the places of its parts."""

    value: object
    """The root."""
    positions: Mapping[Path, Position] = field(default_factory=dict)
    """Where each value starts."""
    key_positions: Mapping[Path, Position] = field(default_factory=dict)
    """Where the key of each value starts."""
    problems: tuple[Problem, ...] = ()
    """What could not be taken; such a value is `UNSET` in the tree, such a key is absent."""


def tree_from_yaml(node: yaml.Node | None, tagged: Collection[Tagged] = ()) -> Tree:
    """Turn the node of a YAML document into a tree; `tagged` is what `tagged_in` found in it."""
    builder = _YamlBuilder(tagged)
    value = None if node is None else builder.build(node, ())
    return Tree(
        value=value,
        positions=builder.positions,
        key_positions=builder.key_positions,
        problems=tuple(builder.problems),
    )


def tagged_in(events: Iterable[yaml.Event]) -> frozenset[Tagged]:
    """Return the values that a document gives a tag: a composed node no longer tells."""
    return frozenset(
        (_NODES[type(event)], _position(event))
        for event in events
        if isinstance(event, yaml.NodeEvent) and type(event) in _NODES and event.tag is not None  # type: ignore[attr-defined]  # the stubs do not have it
    )


def tree_from_value(value: object, limit: int = MAX_VALUES) -> Tree:
    """Turn a Python value, or JSON with `Pairs` for objects, into a tree."""
    builder = _ValueBuilder(limit)
    return Tree(value=builder.build(value, ()), problems=tuple(builder.problems))


def quoted(value: object, limit: int = 40) -> str:
    """Show a scalar in backticks as YAML would write it, on one line and at most `limit` long."""
    text = str(value) if isinstance(value, str) else _CONSTANTS.get(str(value), str(value))
    kept = text[: limit + 1]
    text = "".join(char if char.isprintable() and char != "`" else "?" for char in kept)
    return f"`{text if len(text) <= limit else text[: limit - 1] + '…'}`"


def leading_zero(text: str, *, may_be_text: bool = True) -> tuple[str, str]:
    """Say why a number that `is_ambiguous` is refused, and what to write instead."""
    remedy = f"write `{int(text)}`"
    if may_be_text:
        remedy += f', or `"{text}"` where text is meant'
    return f"a number must not begin with `0`, got {quoted(text)}", remedy


def path_text(path: Path) -> str:
    """Write a path as `strategies.thinker[0].size`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


class _Builder:
    """What both ways share: limits, keys and scalars."""

    def __init__(self, limit: int = MAX_VALUES) -> None:
        self.problems: list[Problem] = []
        self._left = limit

    def tell(self, code: str, message: str, path: Path, position: Position | None) -> None:
        self.problems.append(Problem(code=code, message=message, path=path, position=position))

    def has_room(self, path: Path, position: Position | None) -> bool:
        """Count one more value; tell once when there are too many."""
        self._left -= 1
        if len(path) > MAX_DEPTH:
            self.tell("CF005", f"nested deeper than `{MAX_DEPTH}` levels", path[:1], position)
            return False
        if self._left == 0:
            self.tell("CF005", f"holds more than `{MAX_VALUES}` values", path[:1], position)
        return self._left > 0

    def key(self, key: object, path: Path, position: Position | None) -> str | int | None:
        if isinstance(key, str | int) and not isinstance(key, bool):
            taken = self.scalar(key, path, position)
            return taken if isinstance(taken, str | int) else None
        if key is not UNSET:
            self.tell("CF005", f"a key must be text, got {quoted(key)}", path, position)
        return None

    def scalar(self, value: object, path: Path, position: Position | None) -> object:
        """Return the value, or `UNSET` when it could not be shown or saved."""
        problem = ""
        if isinstance(value, float) and not math.isfinite(value):
            problem = f"a number must be finite, got `{value}`"
        elif isinstance(value, int) and not -MAX_NUMBER <= value < MAX_NUMBER:
            problem = "a whole number must fit into 64 bits"
        elif isinstance(value, str) and _SURROGATE.search(value):
            problem = "text must not hold half of a character"
        if not problem:
            return value
        self.tell("CF005", problem, path, position)
        return UNSET


class _YamlBuilder(_Builder):
    def __init__(self, tagged: Collection[Tagged]) -> None:
        super().__init__()
        self._tagged = tagged
        self.positions: dict[Path, Position] = {}
        self.key_positions: dict[Path, Position] = {}
        self._open: set[int] = set()
        self._scalars: dict[int, object] = {}

    def build(self, node: yaml.Node, path: Path) -> object:
        position = self.positions[path] = _position(node)
        if not self.has_room(path, position):
            return UNSET
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open:
            self.tell("CF005", "a value must not contain itself", path, position)
            return UNSET
        if self._has_tag(node):
            self._unsupported(node, path)
            return UNSET
        self._open.add(id(node))
        built: object
        if isinstance(node, yaml.MappingNode):
            built = self._mapping(node, path)
        else:
            built = tuple(self.build(item, (*path, i)) for i, item in enumerate(node.value))
        self._open.remove(id(node))
        return built

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str | int, object]:
        built: dict[str | int, object] = {}
        for key_node, value_node in node.value:
            key = None if self._merges(key_node) else self._key(key_node, path)
            if key in built:
                self._twice(key_node, (*path, key))
            elif key is not None:
                self._member(built, key, (key_node, value_node), path)
        for key_node, value_node in self._inherited(node, path):
            key = self._key(key_node, path)
            if key is not None and key not in built:
                self._member(built, key, (key_node, value_node), path)
        return built

    def _member(
        self,
        built: dict[str | int, object],
        key: str | int,
        nodes: tuple[yaml.Node, yaml.Node],
        path: Path,
    ) -> None:
        place = (*path, key)
        self.key_positions[place] = _position(nodes[0])
        built[key] = self.build(nodes[1], place)

    def _twice(self, key_node: yaml.Node, place: Path) -> None:
        self.problems.append(
            Problem(
                code="CF003",
                message=f"key {quoted(place[-1])} is given twice",
                path=place,
                position=_position(key_node),
                first=self.key_positions[place],
            )
        )

    def _key(self, node: yaml.Node, path: Path) -> str | int | None:
        if isinstance(node, yaml.ScalarNode):
            return self.key(self._typed(node, path), path, _position(node))
        self.tell("CF005", "a key must be text, got a collection", path, _position(node))
        return None

    def _inherited(
        self, node: yaml.MappingNode, path: Path
    ) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        """Members that merge keys (`<<`) bring in, those that win first."""
        for merge in (value for key, value in node.value if self._merges(key)):
            sources = merge.value if isinstance(merge, yaml.SequenceNode) else [merge]
            for source in sources:
                if not self.has_room(path, _position(source)):
                    return
                if not isinstance(source, yaml.MappingNode) or id(source) in self._open:
                    message = "`<<` takes another mapping, or a list of them"
                    self.tell("CF005", message, path, _position(source))
                    continue
                self._open.add(id(source))
                yield from (pair for pair in source.value if not self._merges(pair[0]))
                yield from self._inherited(source, path)
                self._open.discard(id(source))

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> object:
        """Return the value of a node, which aliases may name thousands of times."""
        if id(node) not in self._scalars:
            typed = self._typed(node, path)
            self._scalars[id(node)] = self.scalar(typed, path, _position(node))
        return self._scalars[id(node)]

    def _typed(self, node: yaml.ScalarNode, path: Path) -> object:
        if self._has_tag(node):
            self._unsupported(node, path)
            return UNSET
        kind = node.tag.removeprefix(_PREFIX)
        if kind == "int" and is_ambiguous(node.value):
            self._ambiguous(node, path)
            return UNSET
        try:
            return _typed(kind, node)
        except ValueError:
            self.tell("CF005", f"{quoted(node.value)} is no valid {kind}", path, _position(node))
            return UNSET

    def _has_tag(self, node: yaml.Node) -> bool:
        """Whether the text gives a tag, rather than the value telling its own type."""
        return (type(node), _position(node)) in self._tagged

    def _merges(self, key: yaml.Node) -> bool:
        """Whether a key is `<<`."""
        return key.tag == _MERGE and not self._has_tag(key)

    def _ambiguous(self, node: yaml.ScalarNode, path: Path) -> None:
        message, remedy = leading_zero(node.value)
        self.problems.append(
            Problem(code="CF005", message=message, path=path, position=_position(node), help=remedy)
        )

    def _unsupported(self, node: yaml.Node, path: Path) -> None:
        tag = quoted(node.tag.replace(_PREFIX, "!!"))
        self.tell("CF005", f"tag {tag} is not supported", path, _position(node))


def _typed(kind: str, node: yaml.ScalarNode) -> object:
    """Return the value of a scalar whose kind its own text tells."""
    match kind:
        case "int" | "float" if len(node.value) > _LONGEST_NUMBER:
            raise ValueError
        case "int":
            return whole_number(node.value)
        case "float":
            return number(node.value)
        case "bool":
            return node.value.lower() == "true"
        case "null":
            return None
        case _:  # text, and a `<<` that is no key
            return node.value


class _ValueBuilder(_Builder):
    def build(self, value: object, path: Path) -> object:
        if value is UNSET or not self.has_room(path, None):
            return UNSET
        if isinstance(value, Pairs):
            return self._mapping(value, path)
        if isinstance(value, Mapping):
            return self._mapping(value.items(), path)
        if isinstance(value, list | tuple):
            return tuple(self.build(item, (*path, i)) for i, item in enumerate(value))
        if type(value) not in _SCALARS:
            kind = type(value).__name__
            self.tell("CF005", f"a value of type `{kind}` has no place here", path, None)
            return UNSET
        return self.scalar(value, path, None)

    def _mapping(
        self, members: Iterable[tuple[object, object]], path: Path
    ) -> dict[str | int, object]:
        built: dict[str | int, object] = {}
        for name, value in members:
            key = self.key(name, path, None)
            if key in built:
                self.tell("CF003", f"key {quoted(key)} is given twice", (*path, key), None)
            elif key is not None:
                built[key] = self.build(value, (*path, key))
        return built


def _position(node: yaml.Node | yaml.Event) -> Position:
    mark = node.start_mark
    assert mark is not None
    return mark.line + 1, mark.column + 1
