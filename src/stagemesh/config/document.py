"""Documents: what one source says, as plain values with the place of each.

YAML files, JSON text and Python mappings become the same thing here, so everything behind this file
knows one form. What cannot be read becomes a diagnostic; nothing raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path as FilePath
from typing import Final, TypeAlias

import yaml

from stagemesh.config.json_comments import json_comment
from stagemesh.config.opened import MAX_BYTES, OpenedFile, open_file
from stagemesh.config.tree import (
    MAX_VALUES,
    Pairs,
    Path,
    Position,
    Tree,
    path_text,
    tagged_in,
    tree_from_value,
    tree_from_yaml,
)
from stagemesh.config.yaml_core import CoreLoader
from stagemesh.config.yaml_words import yaml_words
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer, Origin

Findings: TypeAlias = list[Diagnostic]
"""Where readers put what they find, in the order of the source."""

_TAG: Final = "!"
"""How every tag begins."""
_COMMENTS: Final = "leave it out; in a file, `#` begins a comment, as in YAML"
_SHORT: Final = 10_000
"""Characters of a text that cannot hold too many values."""
_MAX_EVENTS: Final = 3 * MAX_VALUES + 8
"""Steps of the parser above which there are too many values: a value has a key, a start, an end."""


@frozen
class Document:
    """One source that was read; its root is a mapping."""

    value: Mapping[str | int, object]
    """The content."""
    source: str
    """File name as the user gave it, or the flag or argument."""
    layer: Layer
    """The layer that its values belong to."""
    shipped: bool = False
    """Whether it ships with the model."""
    text: str | None = None
    """The text, for showing lines at fault; `None` for Python values."""
    positions: Mapping[Path, Position] = field(default_factory=dict)
    """Where each value starts."""
    key_positions: Mapping[Path, Position] = field(default_factory=dict)
    """Where the key of each value starts."""

    def origin(self, path: Path, layer: Layer | None = None) -> Origin:
        """Return the place of the value at `path`."""
        return self._origin(path, self.positions.get(path), layer)

    def key_origin(self, path: Path, layer: Layer | None = None) -> Origin:
        """Return the place of the key whose value is at `path`."""
        position = self.key_positions.get(path) or self.positions.get(path)
        return self._origin(path, position, layer)

    def _origin(self, path: Path, position: Position | None, layer: Layer | None) -> Origin:
        line, column = position or (None, None)
        return Origin(
            layer=self.layer if layer is None else layer,
            source=self.source,
            line=line,
            column=column,
            path=path_text(path),
            shipped=self.shipped,
        )


@frozen
class Source:
    """What is read and how it is called in messages."""

    name: str
    """File name as the user gave it, or the flag or argument."""
    layer: Layer
    """The layer that its values belong to."""
    expected: str = "a mapping"
    """What it should hold, for a source that holds something else."""
    shipped: bool = False
    """Whether it ships with the model."""


def read_yaml(
    given: FilePath | OpenedFile | str, source: Source, findings: Findings
) -> Document | None:
    """Read a YAML file (a `Path`, or one that was opened) or YAML text (a `str`)."""
    text = given if isinstance(given, str) else read_text(given, source, findings)
    if text is None or _tell_comment(text, source, findings):
        return None
    form = "JSON or YAML" if text.lstrip().startswith("{") else "YAML"
    try:
        if len(text) > _SHORT and _holds_too_much(text):
            _tell(findings, source, "CF005", f"holds more than `{MAX_VALUES}` values")
            return None
        tagged = tagged_in(yaml.parse(text, Loader=CoreLoader)) if _TAG in text else ()
        tree = tree_from_yaml(yaml.compose(text, Loader=CoreLoader), tagged)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else None
        reason, remedy = yaml_words(error, text)
        findings.append(_malformed(f"not valid {form}: {reason}", text, source, place, remedy))
        return None
    except yaml.YAMLError as error:
        _tell(findings, source, "CF002", f"not valid {form}: {str(error).splitlines()[0]}")
        return None
    except RecursionError:  # the parser's own limit, far above ours
        _tell(findings, source, "CF005", "nested too deeply")
        return None
    return _document(tree, text, source, findings)


def _tell_comment(text: str, source: Source, findings: Findings) -> bool:
    """Tell a comment in what else is JSON, at its own place; false where there is none."""
    place = json_comment(text)
    if place is not None:
        message, remedy = "not valid JSON: it has no comments", _COMMENTS
        findings.append(_malformed(message, text, source, place, remedy))
    return place is not None


def _malformed(
    message: str, text: str, source: Source, place: Position | None, remedy: str | None = None
) -> Diagnostic:
    """A mistake of form at a line and a column, with that line."""
    lines = text.split("\n")
    line, column = place or (None, None)
    return Diagnostic(
        code="CF002",
        message=message,
        origin=_origin(source, line, column),
        help=remedy,
        excerpt=lines[line - 1].rstrip("\r") if line and line <= len(lines) else None,
    )


def _holds_too_much(text: str) -> bool:
    """Whether there are too many values, before a node is made of any."""
    steps = enumerate(yaml.parse(text, Loader=CoreLoader))
    return any(number > _MAX_EVENTS for number, _ in steps)


def read_json(
    text: str, source: Source, findings: Findings, max_bytes: int | None = MAX_BYTES
) -> Document | None:
    """Read JSON text; positions inside it are not known."""
    if max_bytes is not None and len(text) > max_bytes:
        _tell_large(findings, source)
        return None
    try:
        parsed: object = json.loads(text, object_pairs_hook=Pairs)
    except json.JSONDecodeError as error:
        if not _tell_comment(text, source, findings):
            message, place = f"not valid JSON: {_lower(error.msg)}", (error.lineno, error.colno)
            findings.append(_malformed(message, text, source, place))
        return None
    except ValueError:  # a number of more digits than Python converts
        _tell(findings, source, "CF002", "not valid JSON: a number has too many digits")
        return None
    except RecursionError:
        _tell(findings, source, "CF005", "nested too deeply")
        return None
    return _document(tree_from_value(parsed, len(text) + 1), text, source, findings)


def read_mapping(value: object, source: Source, findings: Findings) -> Document | None:
    """Take a Python mapping as if it had been written in a file."""
    return _document(tree_from_value(value), None, source, findings)


def read_text(file: FilePath | OpenedFile, source: Source, findings: Findings) -> str | None:
    """Read a UTF-8 file, with or without a byte order mark; one without end is left in time."""
    opened = file if isinstance(file, OpenedFile) else open_file(file)
    if opened.problem is not None:
        _tell(findings, source, "CF001", f"cannot be read: {opened.problem}")
    elif len(opened.content) > MAX_BYTES:
        _tell_large(findings, source)
    else:
        try:
            return opened.content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            message = f"not UTF-8 text: byte `{error.start}` is no character"
            _tell(findings, source, "CF001", message)
    return None


def _tell_large(findings: Findings, source: Source) -> None:
    _tell(findings, source, "CF038", f"is larger than `{MAX_BYTES}` bytes")


def _document(tree: Tree, text: str | None, source: Source, findings: Findings) -> Document | None:
    for problem in tree.problems:
        notes: tuple[Note, ...] = ()
        if problem.first is not None:
            first = _origin(source, *problem.first, problem.path)
            notes = (Note(message="first given here", origin=first),)
        line, column = problem.position or (None, None)
        findings.append(
            Diagnostic(
                code=problem.code,
                message=problem.message,
                origin=_origin(source, line, column, problem.path),
                notes=notes,
                help=problem.help,
            )
        )
    if isinstance(tree.value, Mapping):
        return Document(
            value=tree.value,
            source=source.name,
            layer=source.layer,
            shipped=source.shipped,
            text=text,
            positions=tree.positions,
            key_positions=tree.key_positions,
        )
    if not tree.problems:
        got = {type(None): "nothing", tuple: "a list"}.get(type(tree.value), "a single value")
        _tell(findings, source, "CF004", f"expected {source.expected}, got {got}")
    return None


def _tell(findings: Findings, source: Source, code: str, message: str) -> None:
    findings.append(Diagnostic(code=code, message=message, origin=_origin(source, None, None)))


def _origin(source: Source, line: int | None, column: int | None, path: Path = ()) -> Origin:
    return Origin(
        layer=source.layer, source=source.name, line=line, column=column, path=path_text(path)
    )


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
