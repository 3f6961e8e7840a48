"""Value types are frozen, slotted and keyword-only: made by `frozen`, or frozen Structs of msgspec.

A dataclass that holds changing state says `eq=False`: it is known by identity, so it is no value.
It is slotted and keyword-only all the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from tests.architecture.source import (
    PACKAGE,
    SourceFile,
    classes,
    planted,
    read_tree,
    true_keywords,
)

STATE: Final = frozenset({"slots", "kw_only"})
STRUCT: Final = frozenset({"frozen", "kw_only"})


def loose_value_types(files: Iterable[SourceFile]) -> Iterator[str]:
    """Say which dataclasses and Structs can be changed, or take positional arguments."""
    for file in files:
        structs = {"Struct"}
        for node in classes(file.tree):
            lacking: set[str] = set()
            for decorator in node.decorator_list:
                call = decorator if isinstance(decorator, ast.Call) else None
                if _name(call.func if call is not None else decorator) != "dataclass":
                    continue
                if call is None or not _is_state(call):
                    told = f"`{node.name}` is made by `frozen`, or has `eq=False`"
                    yield f"{file.place(node)}: {told}"
                else:
                    lacking |= STATE - true_keywords(call)
            if any(_name(base) in structs for base in node.bases):
                structs.add(node.name)
                lacking |= STRUCT - true_keywords(node)
            if lacking:
                wanted = ", ".join(f"{name}=True" for name in sorted(lacking))
                yield f"{file.place(node)}: `{node.name}` needs {wanted}"


def _is_state(call: ast.Call) -> bool:
    return any(
        keyword.arg == "eq" and ast.unparse(keyword.value) == "False" for keyword in call.keywords
    )


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ast.unparse(node)


def test_every_value_type_is_frozen_slotted_and_keyword_only() -> None:
    """No value of the package can be changed after it was made, or be made by position."""
    assert list(loose_value_types(read_tree(PACKAGE))) == []


def test_a_loose_dataclass_is_caught() -> None:
    """A dataclass that is no state, and state with a missing keyword, are findings."""
    text = (
        "@dataclass\nclass A: ...\n"
        "@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)\nclass B: ...\n"
        "@frozen\nclass C: ...\n"
        "@dataclass(eq=False, slots=True)\nclass State: ...\n"
        "@dataclass(eq=False, slots=True, kw_only=True)\nclass Good: ...\n"
    )
    assert list(loose_value_types(planted({"plan/a.py": text}))) == [
        "plan/a.py:2: `A` is made by `frozen`, or has `eq=False`",
        "plan/a.py:4: `B` is made by `frozen`, or has `eq=False`",
        "plan/a.py:8: `State` needs kw_only=True",
    ]


def test_a_loose_struct_is_caught() -> None:
    """Structs are checked as well, and so are the ones derived from them."""
    text = (
        "class Message(msgspec.Struct, frozen=True, kw_only=True): ...\n"
        "class Hello(Message, tag='hello'): ...\n"
        "class Plain: ...\n"
    )
    assert list(loose_value_types(planted({"runtime/m.py": text}))) == [
        "runtime/m.py:2: `Hello` needs frozen=True, kw_only=True"
    ]
