"""The text under each field of a dataclass, read from its source; only generators need it."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
from collections.abc import Mapping

from stagemesh.spec.switch import needs_of


def field_docs(kind: type) -> Mapping[str, str]:
    """Return the docstring line of each field, inherited ones too; one without is missing here.

    The line of a field that acts only with others says so.
    """
    docs: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each is kind or dataclasses.is_dataclass(each):
            docs |= _own_docs(each)
    needs = needs_of(kind) if dataclasses.is_dataclass(kind) else {}
    return docs | {name: f"{docs[name].removesuffix('.')}; {needs[name]}." for name in needs}


@functools.cache
def _own_docs(kind: type) -> Mapping[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    docs: dict[str, str] = {}
    for statement, after in itertools.pairwise(body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            docs[statement.target.id] = inspect.cleandoc(str(after.value.value))
    return docs
