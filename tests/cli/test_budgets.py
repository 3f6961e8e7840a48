"""What the planning half may cost from a cold start, and what it never loads."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests import budgets
from tests.budgets import ENOUGH, YARDSTICK_S, clean, cpu_seconds, within

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
BUDGETS: Final = [
    *((arguments, 0.150) for arguments in HELP.values()),
    *((arguments, 0.400) for arguments in PLANNING.values()),
    (FITTING, 2.0),
]
"""CPU seconds of the whole process, start of Python included."""


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Byte code is written once for all starts."""
    return clean(tmp_path_factory.mktemp("byte_code"))


@pytest.mark.parametrize(("arguments", "budget"), BUDGETS, ids=[*HELP, *PLANNING, "fit"])
def test_a_cold_start_stays_within_its_budget(
    arguments: list[str], budget: float, environ: dict[str, str]
) -> None:
    """However often it is started, and on a slow machine within as much as that is slower."""
    start = partial(cpu_seconds, ["-m", "stagemesh", *arguments], environ)
    assert within(budget, start, environ)


@pytest.mark.parametrize(
    ("yardstick", "taken", "kept"),
    [
        (1.0, 0.15, True),
        (1.0, 0.16, False),
        (2.0, 0.29, True),
        (2.0, 0.31, False),
        (0.5, 0.15, True),
        (0.5, 0.16, False),
    ],
)
def test_a_budget_grows_on_a_slow_machine_alone(
    monkeypatch: pytest.MonkeyPatch, *, yardstick: float, taken: float, kept: bool
) -> None:
    """By as much as the yardstick takes longer there."""
    monkeypatch.setattr(budgets, "cpu_seconds", lambda *_: yardstick * YARDSTICK_S)
    assert within(0.15, lambda: taken, {}) is kept


@pytest.mark.nightly
@pytest.mark.parametrize(
    "planted", ["import torch", "for _ in range(20_000_000): pass"], ids=["torch", "a loop"]
)
@pytest.mark.parametrize(
    ("arguments", "budget"), [BUDGETS[0], BUDGETS[len(HELP)]], ids=["help", "plan"]
)
def test_what_a_start_should_not_do_breaks_its_budget(
    arguments: list[str], budget: float, planted: str, environ: dict[str, str]
) -> None:
    """A heavy import or a long loop is seen, however slow the machine."""
    program = (
        f"{planted}\nfrom stagemesh.cli._main import main\nraise SystemExit(main({arguments}))"
    )
    start = partial(cpu_seconds, ["-c", program], environ)
    assert not within(budget, start, environ, tries=ENOUGH)


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
