"""Nothing is pickled, and no process is started by a library that pickles."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from tests.architecture.source import PACKAGE, SourceFile, imported_modules, planted, read_tree

BANNED: Final = frozenset(
    {"cloudpickle", "dill", "joblib", "marshal", "multiprocessing", "pickle", "shelve"}
)


def banned_imports(files: Iterable[SourceFile]) -> Iterator[str]:
    """Say where a banned module is imported, at any depth."""
    for file in files:
        for statement, module in imported_modules(file.tree):
            if module.partition(".")[0] in BANNED or module == "torch.multiprocessing":
                yield f"{file.place(statement)}: imports `{module}`"


def unsafe_loads(files: Iterable[SourceFile]) -> Iterator[str]:
    """Say where a file would be unpickled by a library that can do without."""
    for file in files:
        for node in ast.walk(file.tree):
            if not isinstance(node, ast.Call):
                continue
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            if ast.unparse(node.func) == "torch.load" and not _is_true(given.get("weights_only")):
                yield f"{file.place(node)}: `load` without `weights_only=True`"
            elif "allow_pickle" in given and not _is_false(given["allow_pickle"]):
                yield f"{file.place(node)}: `allow_pickle` is not `False`"


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def test_no_module_imports_a_pickling_library() -> None:
    """Wires carry msgspec, weights are safetensors, processes are started by the runtime itself."""
    assert list(banned_imports(read_tree(PACKAGE))) == []


def test_a_banned_import_is_caught_at_any_depth() -> None:
    """Submodules, aliases and imports inside functions are found."""
    text = (
        "import multiprocessing.connection as c\n"
        "def f():\n    from pickle import loads\n    import pickletools\n"
    )
    assert list(banned_imports(planted({"runtime/a.py": text}))) == [
        "runtime/a.py:1: imports `multiprocessing.connection`",
        "runtime/a.py:3: imports `pickle`",
    ]


def test_no_file_is_unpickled() -> None:
    """A checkpoint is foreign: reading it must run nothing that is in it."""
    assert list(unsafe_loads(read_tree(PACKAGE))) == []


def test_an_unsafe_load_is_caught() -> None:
    """Left out, a variable or false is as unsafe as none."""
    text = (
        "torch.load(f, weights_only=True)\ntorch.load(f)\ntorch.load(f, weights_only=flag)\n"
        "numpy.load(f, allow_pickle=True)\nnumpy.load(f, allow_pickle=False)\n"
    )
    assert list(unsafe_loads(planted({"models/a.py": text}))) == [
        "models/a.py:2: `load` without `weights_only=True`",
        "models/a.py:3: `load` without `weights_only=True`",
        "models/a.py:4: `allow_pickle` is not `False`",
    ]
