"""The project's source as syntax trees, for tests that hold its architecture.

Every rule is a function from files to findings, one sentence each, so that a test can hand it the
real tree and, to prove that it catches something, a planted one.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""Folder of the project."""
PACKAGE: Final = ROOT / "src" / "stagemesh"
"""Folder of the package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One parsed file."""

    path: PurePosixPath
    """Path inside the tree that was read."""
    text: str
    """What it says."""
    tree: ast.Module
    """The same, parsed."""

    @property
    def num_lines(self) -> int:
        """Lines of the file."""
        return len(self.text.splitlines())

    def place(self, node: ast.expr | ast.stmt | ast.pattern) -> str:
        """`path:line` of a node."""
        return f"{self.path}:{node.lineno}"


@functools.cache
def read_tree(folder: Path) -> tuple[SourceFile, ...]:
    """Parse every Python file below `folder`, in a fixed order."""
    return tuple(
        _parse(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.py"))
    )


def planted(files: Mapping[str, str]) -> list[SourceFile]:
    """Parse files given as text by path: a small tree with a planted fault."""
    return [_parse(path, text) for path, text in files.items()]


def _parse(path: str, text: str) -> SourceFile:
    return SourceFile(path=PurePosixPath(path), text=text, tree=ast.parse(text, filename=path))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method below a node."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def classes(tree: ast.AST) -> Iterator[ast.ClassDef]:
    """Every class below a node."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def imported_modules(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Every module that is imported at any depth, with the statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield node, node.module


def true_keywords(call: ast.Call | ast.ClassDef) -> set[str]:
    """Names of the keywords that are given as `True`."""
    return {
        keyword.arg
        for keyword in call.keywords
        if keyword.arg is not None
        and isinstance(keyword.value, ast.Constant)
        and keyword.value.value is True
    }
