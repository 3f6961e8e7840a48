"""Files and functions stay small, and every room says what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tests.architecture.source import PACKAGE, ROOT, SourceFile, functions, planted, read_tree

FILE_LINES: Final = 400
MODEL_FILE_LINES: Final = 600
FUNCTION_LINES: Final = 60
PARAMETERS: Final = 6
ROOM_DOCSTRING_LINES: Final = 15

# Each with its reason: `path` for a file, `path::function` for a function.
ALLOWED: Final[Mapping[str, str]] = {
    "engines/ar/attention.py::_attention": "the signature of an attention function of transformers",
    "runtime/omni.py::__init__": "the front door: what runs, and the limits of it",
}


def oversized(files: Iterable[SourceFile]) -> Iterator[str]:
    """Say which files and functions are larger than the style allows."""
    for file in files:
        limit = MODEL_FILE_LINES if file.path.parts[0] == "models" else FILE_LINES
        if file.num_lines > limit and str(file.path) not in ALLOWED:
            yield f"{file.path}: {file.num_lines} lines, at most {limit}"
        for function in functions(file.tree):
            if f"{file.path}::{function.name}" not in ALLOWED:
                yield from _oversized_function(file, function)


def _oversized_function(
    file: SourceFile, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[str]:
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if lines > FUNCTION_LINES:
        place = file.place(function)
        yield f"{place}: `{function.name}` has {lines} lines, at most {FUNCTION_LINES}"
    given = function.args
    names = [arg.arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    count = len([name for name in names if name not in {"self", "cls"}])
    if count > PARAMETERS:
        place = file.place(function)
        yield f"{place}: `{function.name}` has {count} parameters, at most {PARAMETERS}"


def mute_rooms(files: Iterable[SourceFile]) -> Iterator[str]:
    """Say which folders do not explain themselves in a short docstring."""
    for file in files:
        if file.path.name != "__init__.py":
            continue
        docstring = ast.get_docstring(file.tree)
        if docstring is None:
            yield f"{file.path}: no docstring"
        elif (lines := len(docstring.splitlines())) > ROOM_DOCSTRING_LINES:
            yield f"{file.path}: docstring of {lines} lines, at most {ROOM_DOCSTRING_LINES}"


def test_every_file_and_function_of_the_package_is_small() -> None:
    """A file is one idea and a function fits on a screen."""
    assert list(oversized(read_tree(PACKAGE))) == []


def test_every_file_and_function_of_tests_and_benchmarks_is_small() -> None:
    """Tests are read like the code they hold."""
    files = [*read_tree(ROOT / "tests"), *read_tree(ROOT / "benchmarks")]
    assert list(oversized(files)) == []


def test_every_exception_from_the_sizes_is_still_needed() -> None:
    """An entry of `ALLOWED` names something that exists."""
    known = {str(file.path) for file in read_tree(PACKAGE)}
    known |= {
        f"{file.path}::{function.name}"
        for file in read_tree(PACKAGE)
        for function in functions(file.tree)
    }
    assert set(ALLOWED) <= known


def test_every_folder_says_in_a_few_lines_what_belongs_there() -> None:
    """Each folder of the package has a docstring of at most fifteen lines."""
    assert list(mute_rooms(read_tree(PACKAGE))) == []
    silent = {path.parent for path in PACKAGE.rglob("*.py")}
    silent -= {path.parent for path in PACKAGE.rglob("__init__.py")}
    assert silent == set()


def test_an_oversized_file_is_caught() -> None:
    """One line too many is a finding; a model's file may be longer."""
    text = "x = 1\n" * (FILE_LINES + 1)
    assert list(oversized(planted({"plan/long.py": text}))) == [
        "plan/long.py: 401 lines, at most 400"
    ]
    assert list(oversized(planted({"models/m/net.py": text}))) == []


def test_an_oversized_function_is_caught() -> None:
    """Long bodies and long parameter lists are findings, `self` not counted."""
    body = "".join("        x = 1\n" for _ in range(FUNCTION_LINES))
    text = f"class C:\n    def run(self, a, b, c, *, d, e, f):\n{body}"
    assert list(oversized(planted({"plan/wide.py": text}))) == [
        "plan/wide.py:2: `run` has 61 lines, at most 60"
    ]
    text = "async def run(a, b, c, /, d, *, e, f, g): ...\n"
    assert list(oversized(planted({"plan/wide.py": text}))) == [
        "plan/wide.py:1: `run` has 7 parameters, at most 6"
    ]


def test_a_folder_without_or_with_a_long_docstring_is_caught() -> None:
    """Silence and lectures are findings alike."""
    long = '"""' + "line\n" * (ROOM_DOCSTRING_LINES + 1) + '"""\n'
    found = list(mute_rooms(planted({"a/__init__.py": "", "b/__init__.py": long})))
    assert found == [
        "a/__init__.py: no docstring",
        "b/__init__.py: docstring of 16 lines, at most 15",
    ]
