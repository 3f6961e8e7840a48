"""Many histories, one after another."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable
from typing import Final

from stagemesh.spec.frozen import frozen
from stagemesh.testing.simulator.setting import Rules
from stagemesh.testing.simulator.world import simulate

_MOST_TOLD: Final = 20
"""Broken seeds that are named; the rest is counted."""
_GARBAGE: Final = 200_000
"""Objects between two collections: a history lets go of its own, unless it breaks a rule."""


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
    """Play the histories of `seeds`, one after another; an error that gets out names the seed."""
    rules = rules or Rules()
    histories = events = finished = failed = refused = 0
    broken: dict[int, str] = {}
    before = gc.get_threshold()
    gc.set_threshold(_GARBAGE, *before[1:])
    try:
        for seed in seeds:
            try:
                outcome = simulate(seed, rules)
            except BaseException as error:
                error.add_note(f"while seed {seed} was played")
                raise
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
