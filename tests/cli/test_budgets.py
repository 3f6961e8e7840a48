"""What the planning half may cost from a cold start, and what it never loads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.slow

FIXTURE: Final = str(Path(__file__).parents[1] / "fixtures" / "qwen2_5_omni")
PICTURE: Final = str(Path(__file__).parents[1] / "fixtures" / "diffusers" / "qwen_image")
HEAVY: Final = {"torch", "transformers", "diffusers", "vllm", "numpy", "msgspec", "rich", "fastapi"}
DEPLOY: Final = str(Path(__file__).parents[2] / "examples" / "deploy" / "whole_payloads.yaml")
LAYOUT: Final = (FIXTURE, "--devices", "8xH200")
HELP: Final = {
    "help": ["--help"],
    "help of planning": ["plan", "--help"],
    "help of running": ["run", "--help"],
    "help of every flag": ["plan", "--help-all"],
}
"""What is shown without a look at any configuration."""
PLANNING: Final = {
    "plan": ["plan", *LAYOUT],
    "validate": ["validate", DEPLOY, "--pipeline", "voice_chat"],
    "explain code": ["explain", "CF010"],
    "explain axis": ["explain", "axis", "ep"],
    "explain field": ["explain", "max_num_seqs"],
    "explain value": ["explain", "thinker.tp", *LAYOUT],
    "diff": ["diff", DEPLOY, DEPLOY],
}
FITTING: Final = ["plan", PICTURE, "--fit", "64xH200"]
LISTING: Final = {
    "list": ["list", "engines"],
    "schema": ["schema", "strategy"],
    "completion": ["completion", "bash"],
}
RUNS: Final = 20
"""Tries until one stays within the budget: other work on the machine only ever adds."""


def clean(cache: Path) -> dict[str, str]:
    """The environment of an installed program: byte code is kept, nothing measures along."""
    dropped = ("COVERAGE", "COV_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "PYTHONPYCACHEPREFIX": str(cache)}


def cpu_seconds(arguments: list[str], environ: dict[str, str]) -> float:
    """Run the program once and return the CPU time that it took."""
    child = subprocess.Popen(
        [sys.executable, "-m", "stagemesh", *arguments],
        stdout=subprocess.DEVNULL,
        env=environ,
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize(
    ("arguments", "budget"),
    [
        *((arguments, 0.150) for arguments in HELP.values()),
        *((arguments, 0.400) for arguments in PLANNING.values()),
        (FITTING, 2.0),
    ],
    ids=[*HELP, *PLANNING, "fit"],
)
def test_a_cold_start_stays_within_its_budget(
    arguments: list[str], budget: float, tmp_path: Path
) -> None:
    """CPU time of the whole process, start of Python included; the first run writes byte code."""
    environ = clean(tmp_path)
    cpu_seconds(arguments, environ)
    assert any(cpu_seconds(arguments, environ) <= budget for _ in range(RUNS))


@pytest.mark.parametrize(
    "arguments",
    [*HELP.values(), *LISTING.values(), *PLANNING.values(), FITTING],
    ids=[*HELP, *LISTING, *PLANNING, "fit"],
)
def test_planning_loads_nothing_heavy(arguments: list[str]) -> None:
    """Asked of the very process that ran the command."""
    program = (
        "import sys\n"
        "from stagemesh.cli._main import main\n"
        f"code = main({arguments!r})\n"
        f"sys.exit(code or ', '.join(sorted({HEAVY!r} & set(sys.modules))) or None)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, timeout=240, text=True
    )
    assert (ended.returncode, ended.stderr) == (0, "")
