"""Planning works with the base install: no torch, no transformers, nothing but PyYAML.

Every test runs twice: in this environment with an import blocker that knows only the standard
library, PyYAML and stagemesh itself, and in the light environment `.venv-plan` of `make test`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.plugins import PACKAGES
from tests.architecture.source import PACKAGE, ROOT
from tests.waiting import WAIT_S

LIGHT: Final = ROOT / ".venv-plan" / "bin" / "python"
FIXTURE: Final = ROOT / "tests" / "fixtures" / "qwen2_5_omni"

BLOCKER: Final = """
import sys

class Blocker:
    allowed = sys.stdlib_module_names | {"stagemesh", "yaml", "_yaml"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.allowed:
            raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)

sys.meta_path.insert(0, Blocker())
"""

RUN_MAIN: Final = """
import sys
from stagemesh.cli._main import main
sys.exit(main())
"""


def _python(environment: str, code: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run code without anything that the base install does not have."""
    interpreter = LIGHT if environment == "light" else Path(sys.executable)
    prelude = "" if environment == "light" else BLOCKER
    return subprocess.run(
        [str(interpreter), "-c", prelude + code, *args],
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )


@pytest.fixture(
    params=[
        "blocked",
        pytest.param(
            "light",
            marks=pytest.mark.skipif(not LIGHT.exists(), reason="`make test` makes .venv-plan"),
        ),
    ]
)
def environment(request: pytest.FixtureRequest) -> str:
    """One of the two environments without heavy libraries."""
    return str(request.param)


def planning_modules() -> list[str]:
    """Every module of the planning rooms, and every declaration."""
    rooms = [PACKAGE / "errors.py", PACKAGE / "strategy.py"]
    for room in ("spec", "axes", "config", "plan"):
        rooms += sorted((PACKAGE / room).rglob("*.py"))
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in rooms]
    declared = [module for modules in PACKAGES.values() for module in modules().values()]
    return [name.removesuffix(".__init__") for name in names] + declared + ["stagemesh.cli._main"]


@pytest.mark.parametrize("library", ["torch", "transformers", "numpy", "msgspec", "rich"])
def test_heavy_libraries_are_really_absent(environment: str, library: str) -> None:
    """The two environments would catch an import of any of them."""
    done = _python(environment, f"import {library}")
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr


def test_every_module_of_the_planning_half_imports(environment: str) -> None:
    """Rooms from errors to plan, and every declaration, need PyYAML alone."""
    modules = planning_modules()
    assert "stagemesh.plan.values" in modules
    code = "import importlib, json, sys\nfor name in json.loads(sys.argv[1]):\n"
    done = _python(environment, f"{code}    importlib.import_module(name)", json.dumps(modules))
    assert done.returncode == 0, done.stderr


def test_a_plan_is_made_and_printed(environment: str) -> None:
    """`stagemesh plan --json` of a checkpoint's configuration works with the base install."""
    done = _python(environment, RUN_MAIN, "plan", str(FIXTURE), "--devices", "8xH200", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["pipeline"] == "qwen2_5_omni"


def test_the_help_is_printed(environment: str) -> None:
    """`stagemesh --help` lists every command, the ones that need more included."""
    done = _python(environment, RUN_MAIN, "--help")
    assert done.returncode == 0, done.stderr
    assert "run" in done.stdout
