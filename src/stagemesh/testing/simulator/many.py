"""Many histories: one after another, or shared out over processes."""

from __future__ import annotations

import gc
import itertools
import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Final

from stagemesh.spec.frozen import frozen
from stagemesh.testing.simulator.setting import Rules
from stagemesh.testing.simulator.world import simulate

_MOST_TOLD: Final = 20
"""Broken seeds that are named; the rest is counted."""
_GARBAGE: Final = 200_000
"""Objects between two collections: a history is a knot of references, and a small one."""


@frozen
class Summary:
    """What became of many histories."""

    histories: int
    """How many were played."""
    events: int
    """Events of all of them."""
    finished: int
    """Requests that finished."""
    failed: int
    """Requests that ended with an error."""
    refused: int
    """Requests that were not taken on."""
    broken: dict[int, str]
    """The rule that a seed breaks, by seed."""

    @classmethod
    def together(cls, parts: Iterable[Summary]) -> Summary:
        """Add up."""
        found = list(parts)
        return cls(
            histories=sum(part.histories for part in found),
            events=sum(part.events for part in found),
            finished=sum(part.finished for part in found),
            failed=sum(part.failed for part in found),
            refused=sum(part.refused for part in found),
            broken={seed: told for part in found for seed, told in part.broken.items()},
        )

    def to_json(self) -> str:
        """As one line, for the process that asked."""
        return json.dumps({name: getattr(self, name) for name in _NAMES})

    @classmethod
    def from_json(cls, text: str) -> Summary:
        """Read that line."""
        found = json.loads(text)
        broken = {int(seed): told for seed, told in found.pop("broken").items()}
        return cls(broken=broken, **found)


_NAMES: Final = ("histories", "events", "finished", "failed", "refused", "broken")


def play(seeds: Iterable[int], rules: Rules | None = None) -> Summary:
    """Play the histories of `seeds`, one after another."""
    rules = rules or Rules()
    histories = events = finished = failed = refused = 0
    broken: dict[int, str] = {}
    before = gc.get_threshold()
    gc.set_threshold(_GARBAGE, *before[1:])
    try:
        for seed in seeds:
            outcome = simulate(seed, rules)
            histories += 1
            events += outcome.events
            finished += outcome.finished
            failed += outcome.failed
            refused += outcome.refused
            if outcome.violation is not None and len(broken) < _MOST_TOLD:
                broken[seed] = outcome.violation
    finally:
        gc.set_threshold(*before)
    return Summary(
        histories=histories,
        events=events,
        finished=finished,
        failed=failed,
        refused=refused,
        broken=broken,
    )


def play_shared(start: int, count: int, processes: int) -> Summary:
    """Play `count` histories from seed `start` on, shared out over `processes`."""
    bounds = [start + count * part // processes for part in range(processes + 1)]
    command = [sys.executable, "-m", __package__, "--json"]
    running = [
        subprocess.Popen(  # noqa: S603  this very interpreter and module
            [*command, "--start", str(first), "--count", str(last - first)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for first, last in itertools.pairwise(bounds)
    ]
    try:
        return Summary.together(Summary.from_json(one.communicate()[0]) for one in running)
    finally:
        for one in running:
            one.kill()
            one.wait()
