"""Thousands of histories hold every rule, and a broken machine breaks one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any, Final

import pytest

from stagemesh.runtime.core.credits import Inflow
from stagemesh.testing.simulator.many import Summary, play
from stagemesh.testing.simulator.setting import Rules
from stagemesh.testing.simulator.shared import play_shared
from stagemesh.testing.simulator.world import simulate
from tests.testing.simulator.mutants import MUTANTS, KeepsCredit, first_caught

HISTORIES: Final = 1_000 if os.environ.get("HYPOTHESIS_PROFILE") == "check" else 10_000
"""How many are played, by the same word that says how long property tests look."""
MANY: Final = 1_000_000
RARE: Final = frozenset({"epochs are ignored"})
"""Needs a name that is used again, a death, and a message that is late for both."""


def test_every_rule_holds_in_every_history() -> None:
    """Nothing is lost, repeated or left behind, whatever goes wrong, and most requests finish."""
    summary = play(range(HISTORIES))
    assert summary.broken == {}
    assert summary.histories == HISTORIES
    assert summary.finished > summary.failed > HISTORIES / 4
    assert summary.refused > HISTORIES / 10


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_every_rule_holds_in_a_million_histories() -> None:
    """The long form, on every core; how far it came is shown when it fails."""
    summary = play_shared(0, MANY, os.cpu_count() or 1, print)
    assert summary.broken == {}
    assert summary.histories == MANY


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in RARE else name for name in MUTANTS],
)
def test_a_broken_rule_is_noticed(name: str) -> None:
    """Each machine with one rule broken is caught within some thousand histories."""
    caught = first_caught(MUTANTS[name], range(4_000 if name in RARE else 1_000))
    assert caught is not None


@pytest.mark.parametrize("seed", [42_099, 158_453, 7_856, 3_646])
def test_a_rare_history_holds(seed: int) -> None:
    """A name is used again while its companion waits; a process joins beside one just killed.

    Two requests wait for each other at one process, where two edges have them in another order.
    """
    assert simulate(seed).violation is None


def test_a_seed_is_one_history() -> None:
    """Played again it is the same to the last event, also while it is written down."""
    for seed in range(30):
        kept = simulate(seed, keep=True)
        again = simulate(seed, keep=True)
        assert kept == again
        assert kept.events == simulate(seed).events
        assert kept.history


def test_a_broken_seed_says_so() -> None:
    """The seed and the rule are in the summary, and the history tells how it came to that."""
    rules = Rules(inflow=KeepsCredit)
    summary = play(range(20), rules)
    seed, told = next(iter(summary.broken.items()))
    assert "credit" in told
    assert simulate(seed, rules, keep=True).violation == told


def test_a_summary_goes_to_another_process_and_back() -> None:
    """So histories can be shared out."""
    one = Summary(
        histories=3, events=70, finished=4, failed=1, refused=0, broken={2: "it was too late"}
    )
    assert Summary.from_json(one.to_json()) == one
    both = Summary.together([one, play(range(2))])
    assert (both.histories, both.broken) == (5, {2: "it was too late"})


def test_an_error_that_no_rule_foresees_names_its_seed() -> None:
    """A fault of the simulator itself ends everything, and can be found again."""

    class Faulty(Inflow):
        def __init__(self) -> None:
            raise TypeError("nobody has foreseen this")

    with pytest.raises(TypeError, match="foreseen") as caught:
        play(range(7, 9), Rules(inflow=Faulty))
    assert caught.value.__notes__ == ["while seed 7 was played"]


def test_shared_histories_are_those_of_one_process() -> None:
    """However many play them, and every share is told of once it has been played."""
    told: list[str] = []
    assert play_shared(10, 7, 2, told.append) == play(range(10, 17))
    assert sorted(told) == ["seeds 10 to 13: every rule held", "seeds 14 to 16: every rule held"]
    assert play_shared(10, 0, 2) == play(())


def test_seeds_that_a_process_did_not_end_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the process that failed, and those that others were playing."""
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(ChildProcessError) as caught:
        play_shared(10, 4, 2)
    said = {"seeds 10 to 11", "seeds 12 to 13"}
    failed = str(caught.value).removesuffix(": their process ended with 1")
    assert failed in said
    assert caught.value.__notes__ == [f"{one} were being played" for one in said - {failed}]


@pytest.mark.parametrize("has_waited", [False, True])
def test_an_interrupt_leaves_no_process_behind(
    monkeypatch: pytest.MonkeyPatch, *, has_waited: bool
) -> None:
    """Neither that whose end was waited for, before or after it came, nor another."""
    started: list[subprocess.Popen[str]] = []

    class Interrupted(subprocess.Popen[str]):
        def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401  all of its own
            super().__init__(*given, **named)
            started.append(self)

        def communicate(self, *given: Any, **named: Any) -> tuple[str, str]:  # noqa: ANN401
            if has_waited:
                super().communicate(*given, **named)
            raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        play_shared(10, 4, 2)
    assert [each.returncode is None for each in started] == [False, False]
    assert all(each.stdout is not None and each.stdout.closed for each in started)
    assert len(caught.value.__notes__) == len(started)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["7"], "seed 7: "),
        (["--count", "3", "--start", "5"], "3 histories, "),
        (["--count", "4", "--processes", "2"], "4 histories, "),
        (["--count", "2", "--json"], '{"histories": 2, '),
    ],
)
def test_the_command_tells_what_happened(arguments: list[str], told: str) -> None:
    """A seed is replayed line by line; many are summed up."""
    command = [sys.executable, "-m", "stagemesh.testing.simulator", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines()[-1].startswith(told)
