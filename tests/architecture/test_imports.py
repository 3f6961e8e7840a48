"""Who imports whom: the contracts of import-linter, and what it cannot say about plug-ins."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path, PurePosixPath
from typing import Final

import grimp
import pytest

from stagemesh.spec.registry import COMMANDS
from tests.architecture.plugins import PACKAGES, Home, homes
from tests.architecture.source import PACKAGE, ROOT
from tests.waiting import WAIT_S

HEAVY: Final = frozenset(
    {"torch", "transformers", "diffusers", "vllm", "numpy", "fastapi", "msgspec", "rich"}
)
"""What no declaration reaches."""

RUNNING_COMMANDS: Final = frozenset({"run", "serve", "top", "demo-checkpoint"})
"""Commands that do more than planning, so that their work may need an extra."""


LIGHT_PROCESSES: Final = (
    "stagemesh.runtime.stage_main",
    "stagemesh.runtime.rank_main",
    "stagemesh.runtime.omni",
    "stagemesh.connectors",
    "stagemesh.engines._fake",
)
"""What every process of a system is made of, whatever its engine."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Every import of the package, lazy ones included, with external packages."""
    return grimp.build_graph("stagemesh", include_external_packages=True, cache_dir=None)


def heavy_modules(
    graph: grimp.ImportGraph, modules: Sequence[str], heavy: AbstractSet[str] = HEAVY
) -> Iterator[str]:
    """Say which modules reach a heavy library, themselves or through the packages they are in."""
    for module in modules:
        parts = module.split(".")
        # The package itself offers lazily what a user may import from it, so it is left out.
        for name in (".".join(parts[:end]) for end in range(2, len(parts) + 1)):
            reached = heavy & graph.find_upstream_modules(name)
            if reached:
                yield f"`{name}` reaches {', '.join(sorted(reached))}"


def foreign_importers(graph: grimp.ImportGraph, known: Sequence[Home]) -> Iterator[str]:
    """Say who imports a plug-in without belonging to it."""
    for home in known:
        own = {module for module in graph.modules if home.holds(_path(module))}
        for module in sorted(own):
            for importer in sorted(graph.find_modules_that_directly_import(module) - own):
                yield f"`{importer}` imports `{module}`"


def _path(module: str) -> PurePosixPath:
    return PurePosixPath(module.removeprefix("stagemesh.").replace(".", "/") + ".py")


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the package below `folder`, with the contracts that lie there."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )


def test_every_import_contract_is_kept() -> None:
    """Rooms import downwards, siblings have no cycles, the planning half is light."""
    done = _lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_declaration_reaches_a_heavy_library(graph: grimp.ImportGraph) -> None:
    """Whatever the registry loads to plan is free of torch and its like, transitively."""
    declared = [module for modules in PACKAGES.values() for module in modules().values()]
    assert list(heavy_modules(graph, declared)) == []


def test_no_planning_command_reaches_a_heavy_library(graph: grimp.ImportGraph) -> None:
    """All commands but the ones that run something work with the base install."""
    commands = [item for item in COMMANDS.declarations() if item.name not in RUNNING_COMMANDS]
    modules = [command.run.partition(":")[0] for command in commands]
    assert modules
    assert list(heavy_modules(graph, [*modules, "stagemesh.cli._main"])) == []


def test_only_engines_make_a_process_heavy(graph: grimp.ImportGraph) -> None:
    """A stage starts with messages and streams; what computes comes with its engine."""
    modules = [
        module
        for module in sorted(graph.modules)
        if any(module == each or module.startswith(f"{each}.") for each in LIGHT_PROCESSES)
    ]
    assert {*LIGHT_PROCESSES} <= {*modules}
    assert list(heavy_modules(graph, modules, HEAVY - {"msgspec"})) == []


def test_nobody_imports_a_plugin_by_name(graph: grimp.ImportGraph) -> None:
    """Plug-ins are found by the registry: no sibling and no other room imports one."""
    assert list(foreign_importers(graph, list(homes()))) == []


ROOMS: Final = "Rooms import downwards only, lazy imports included BROKEN"
CYCLES: Final = "No two siblings import each other, at any depth BROKEN"
LIGHT: Final = "The planning half reaches no heavy library, directly or through others BROKEN"


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("errors.py", "import stagemesh.spec.origin", ROOMS),
        ("axes/tp.py", "def f():\n    import stagemesh.config.settings", ROOMS),
        ("utils/__init__.py", "", "stagemesh.utils"),
        ("spec/facts.py", "import stagemesh.spec.axis", CYCLES),
        ("plan/values.py", "def f():\n    import torch", LIGHT),
    ],
)
def test_a_broken_import_contract_is_caught(
    tmp_path: Path, file: str, line: str, broken: str
) -> None:
    """Upward imports, unknown rooms, cycles and heavy imports fail the lint, lazy ones too."""
    shutil.copytree(PACKAGE, tmp_path / "src" / "stagemesh")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    target = tmp_path / "src" / "stagemesh" / file
    target.parent.mkdir(exist_ok=True)
    with target.open("a", encoding="utf-8") as stream:
        stream.write(f"\n{line}\n")
    done = _lint(tmp_path)
    assert done.returncode == 1
    assert broken in " ".join(done.stdout.split())


def test_a_heavy_declaration_and_a_foreign_import_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted lazy import of a sibling, and of torch, are findings."""
    (tmp_path / "planted" / "axes").mkdir(parents=True)
    (tmp_path / "planted" / "__init__.py").touch()
    (tmp_path / "planted" / "axes" / "__init__.py").touch()
    (tmp_path / "planted" / "axes" / "a.py").write_text("def f():\n    import planted.axes.b\n")
    (tmp_path / "planted" / "axes" / "b.py").write_text("def f():\n    import torch\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    graph = grimp.build_graph("planted", include_external_packages=True, cache_dir=None)
    assert list(heavy_modules(graph, ["planted.axes.a"])) == ["`planted.axes.a` reaches torch"]
    home = Home(module="planted.axes.b", paths=("planted/axes/b.py",))
    assert list(foreign_importers(graph, [home])) == ["`planted.axes.a` imports `planted.axes.b`"]
