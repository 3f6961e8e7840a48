"""Diagnostic codes have one form, and each belongs to one room."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from tests.architecture.source import PACKAGE, SourceFile, planted, read_tree

CODE: Final = re.compile(r"(CF|AX|PL|MD|RT|SV|CL)\d{3}")
"""Configuration files, axes, plan, models, run time, server, command line."""
_WHOLE: Final = re.compile(
    r"(?<=\[)(CF|AX|PL|MD|RT|SV|CL)\d{3}(?=\])|\A(CF|AX|PL|MD|RT|SV|CL)\d{3}\Z"
)
"""A code that is a whole text, or stands in brackets."""
LIKE_A_CODE: Final = re.compile(r"[A-Z]{2,3}\d{2,4}")


def code_findings(files: Iterable[SourceFile]) -> Iterator[str]:
    """Say which codes are malformed, and which are given out by two rooms."""
    rooms: defaultdict[str, set[str]] = defaultdict(set)
    for file in files:
        for node in ast.walk(file.tree):
            for literal in _codes(node):
                code = str(literal.value)
                if not CODE.fullmatch(code):
                    yield f"{file.place(literal)}: `{code}` is no code"
                rooms[code].add(file.path.parts[0])
    for code, users in sorted(rooms.items()):
        if len(users) > 1:
            yield f"`{code}` belongs to one room, given out by {', '.join(sorted(users))}"


def codes_of(files: Iterable[SourceFile]) -> set[str]:
    """Every code that is given out: by a diagnostic, an error of the tree, or a written line."""
    texts = (
        node.value
        for file in files
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return {match[0] for text in texts for match in [_WHOLE.search(text)] if match is not None}


def _codes(node: ast.AST) -> Iterator[ast.Constant]:
    """Strings of that form anywhere in a call, and whatever is given as `code=`."""
    if not isinstance(node, ast.Call):
        return
    for value in node.args:
        if _text(value) is not None and LIKE_A_CODE.fullmatch(_text(value) or ""):
            assert isinstance(value, ast.Constant)
            yield value
    for keyword in node.keywords:
        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
            yield keyword.value


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def test_every_code_is_well_formed_and_belongs_to_one_room() -> None:
    """A code that users look up means one thing."""
    assert list(code_findings(read_tree(PACKAGE))) == []


def test_a_malformed_code_and_one_of_two_rooms_are_caught() -> None:
    """Both faults are findings; several uses in one room are not."""
    files = {
        "config/a.py": 'Diagnostic(code="CF01")\ntell("CF002")\n',
        "config/b.py": 'Problem(code="CF002")\n',
        "plan/a.py": '_wrong("PL001")\n',
        "cli/a.py": 'Diagnostic(code="PL001")\n',
    }
    assert list(code_findings(planted(files))) == [
        "config/a.py:1: `CF01` is no code",
        "`PL001` belongs to one room, given out by cli, plan",
    ]
