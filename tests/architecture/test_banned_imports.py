"""Nothing is pickled, and no process is started by a library that pickles."""

from __future__ import annotations

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
