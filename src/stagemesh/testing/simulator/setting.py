"""What everything in one history shares: the machines under test, time, chance, and the notes."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from stagemesh.runtime.core.credits import Inflow, Outflow
from stagemesh.runtime.core.dispatcher import Dispatcher, Parts
from stagemesh.runtime.core.membership import Membership
from stagemesh.spec.frozen import frozen
from stagemesh.testing.simulator.clock import Clock
from stagemesh.testing.simulator.scenario import Scenario, draw


@frozen
class Rules:
    """The machines under test; a broken one is put in the place of each in turn."""

    parts: Parts = field(default_factory=Parts)
    """What the dispatcher is made of."""
    dispatcher: type[Dispatcher] = Dispatcher
    """The dispatcher."""
    outflow: type[Outflow] = Outflow
    """The producing end of an edge."""
    inflow: type[Inflow] = Inflow
    """The consuming end."""
    membership: type[Membership] = Membership
    """The replicas of a stage."""


class Setting:
    """One history's share of everything."""

    __slots__ = ("_keep", "clock", "events", "history", "rules", "scenario")

    def __init__(self, seed: int, rules: Rules, *, keep: bool) -> None:
        """Draw the scenario; `keep` writes the history down."""
        self.rules: Final = rules
        self.clock: Final = Clock(seed)
        self.scenario: Final[Scenario] = draw(seed, self.clock)
        self.history: Final[list[str]] = []
        self.events = 0
        self._keep = keep

    def say(self, text: str, *given: object) -> None:
        """Write a line of history."""
        if self._keep:
            self.history.append(f"{self.clock.now:6d} #{self.events:<4d} {text % given}")
