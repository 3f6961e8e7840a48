"""No code branches on the name of a plug-in, a model or a stage outside the files of that plug-in.

Looked at are comparisons, `match` cases, keys of dictionaries and members of sets, subscripts,
look-ups such as `.get("tp")`, constants of a module, and references by module path. What a plug-in
says about others is allowed: the keywords in `RELATIONS`, and looking up the size of another axis.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pytest

from tests.architecture.plugins import Home, homes
from tests.architecture.source import PACKAGE, SourceFile, planted, read_tree

RELATIONS: Final[Mapping[str, frozenset[str]]] = {
    "Axis": frozenset({"excludes", "size_from", "overlay"}),
    "EngineSpec": frozenset({"executes"}),
    "StagePipelineConfig": frozenset({"excludes"}),
}
"""Keywords by which a declaration names other plug-ins."""

LOOKUPS: Final = frozenset(
    {"get", "pop", "setdefault", "size", "stage", "startswith", "endswith", "load"}
)
"""Methods whose first argument picks something by name."""

# `path::name`, each with its reason.
ALLOWED: Final[Mapping[str, str]] = {
    "axes/tp.py::text_encoder": "an option of the axis, for what a stage may be as well",
    "engines/diffusion.py::text_encoder": "components of a checkpoint, which may be stages as well",
    "engines/_denoising_sizes.py::vae": "the same",
    "config/kind_fields.py::diffusers": "a load format has the name of that library as well",
}


def branches_on_names(files: Iterable[SourceFile], known: Sequence[Home]) -> Iterator[str]:
    """Say where a plug-in is singled out by its name."""
    for file in files:
        foreign = [home for home in known if not home.holds(file.path)]
        own = {name for home in known if home.holds(file.path) for name in home.names}
        names = {name for home in foreign for name in home.names} - own
        modules = {home.module for home in foreign}
        is_plugin = len(foreign) < len(known)
        for literal in _picking_literals(file.tree, lookups=not is_plugin):
            text = str(literal.value)
            if text in names and f"{file.path}::{text}" not in ALLOWED:
                yield f"{file.place(literal)}: singles out `{text}`"
        for literal in _strings(file.tree):
            text = str(literal.value)
            if any(_refers(text, module) for module in modules):
                yield f"{file.place(literal)}: refers to `{text}`"


def _refers(text: str, module: str) -> bool:
    return text == module or text.startswith((f"{module}:", f"{module}."))


def _picking_literals(tree: ast.AST, *, lookups: bool) -> Iterator[ast.Constant]:
    """Every string that picks something by name."""
    relations = {id(node) for part in _relations(tree) for node in ast.walk(part)}
    seen: set[int] = set()
    for node in ast.walk(tree):
        if id(node) in relations:
            continue
        roots = _picked_by(node) + (_looked_up_by(node) if lookups else [])
        for literal in (literal for root in roots for literal in _strings(root)):
            if id(literal) not in seen:
                seen.add(id(literal))
                yield literal


def _relations(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            allowed = RELATIONS.get(node.func.id, frozenset())
            yield from (keyword.value for keyword in node.keywords if keyword.arg in allowed)


def _picked_by(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Compare(left=left, comparators=comparators):
            sides = [left, *comparators]
            return [side for side in sides if not isinstance(side, ast.Call | ast.Subscript)]
        case ast.MatchValue(value=value):
            return [value]
        case ast.Dict(keys=keys):
            return [key for key in keys if key is not None]
        case ast.Set(elts=elements):
            return elements
        case ast.Module(body=body):
            return list(_constants(body))
    return []


def _constants(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """Values that a module gives a name; a branch on the name is a branch on the value."""
    for statement in body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            value = statement.value
            if isinstance(value, ast.Constant | ast.Tuple | ast.List):
                yield value


def _looked_up_by(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Subscript(slice=index):
            return [index]
        case ast.Call(func=ast.Attribute(attr=attribute), args=[first, *_]):
            return [first] if attribute in LOOKUPS else []
    return []


def _strings(root: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(root):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node


def test_no_code_branches_on_the_name_of_a_plugin() -> None:
    """A plug-in is singled out only by its own files."""
    assert list(branches_on_names(read_tree(PACKAGE), list(homes()))) == []


def test_every_exception_from_the_rule_is_still_needed() -> None:
    """An entry of `ALLOWED` names a file that exists and a name that is registered."""
    names = {name for home in homes() for name in home.names}
    for entry in ALLOWED:
        path, _, name = entry.partition("::")
        assert (PACKAGE / path).is_file()
        assert name in names


TP: Final = Home(module="stagemesh.axes.tp", paths=("axes/tp.py",), names=frozenset({"tp"}))


@pytest.mark.parametrize(
    "fault",
    [
        'x = axis == "tp"',
        'x = axis in ("dp", "tp")',
        'match axis:\n    case "dp" | "tp":\n        pass',
        'x = {"tp": 1}',
        'x = frozenset({"tp"})',
        'x = sizes["tp"]',
        'x = sizes.get("tp", 1)',
        'x = view.size("tp") > 1',
        'x = Axis(name="y", options={"tp": 1})',
        'X: Final = "tp"',
        'X = ("dp", "tp")',
    ],
)
def test_a_branch_on_a_name_is_caught(fault: str) -> None:
    """Each way of singling a plug-in out is a finding, once, and none in its own file."""
    found = list(branches_on_names(planted({"plan/a.py": fault}), [TP]))
    assert len(found) == 1
    assert found[0].endswith("singles out `tp`")
    assert list(branches_on_names(planted({"axes/tp.py": fault}), [TP])) == []


def test_a_reference_to_a_foreign_plugin_is_caught() -> None:
    """Importing a plug-in by a string is as bad as importing it."""
    text = 'x = resolve("stagemesh.axes.tp:AXIS")\ny = "stagemesh.axes.tp2"\n'
    assert list(branches_on_names(planted({"plan/a.py": text}), [TP])) == [
        "plan/a.py:1: refers to `stagemesh.axes.tp:AXIS`"
    ]


def test_relations_that_a_declaration_states_are_allowed() -> None:
    """An axis says what it excludes, an engine what it executes, and prose names anything."""
    text = (
        '"""About `tp`."""\n'
        'A = Axis(name="y", excludes={"tp": "why"}, overlay=("tp",))\n'
        'E = EngineSpec(executes=frozenset({"tp"}))\n'
        'message = say("tp")\n'
        'tp = view.size("tp")\n'
    )
    other = Home(module="stagemesh.axes.y", paths=("axes/y.py",))
    assert list(branches_on_names(planted({"axes/y.py": text}), [TP, other])) == []
