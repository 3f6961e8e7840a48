"""Thousands of histories hold every rule, and a broken machine breaks one."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from stagemesh.testing.simulator.many import Summary, play, play_shared
from stagemesh.testing.simulator.setting import Rules
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
    """The long form, on every core."""
    summary = play_shared(0, MANY, os.cpu_count() or 1)
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


def test_shared_histories_are_those_of_one_process() -> None:
    """However many play them."""
    assert play_shared(10, 7, 2) == play(range(10, 17))


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
