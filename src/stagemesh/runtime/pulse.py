"""Whether a stage process still answers, and how long its engine has been in one step.

Silence is counted in questions, not in seconds: when this process, or the whole machine, has been
asleep, it has asked nothing meanwhile, and so blames nobody for it.
"""

from __future__ import annotations

from time import monotonic

from stagemesh.runtime.load import Load, Trail


class Pulse:
    """What is known of one process from its answers."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self.number = 0
        self.missed = 0
        self.step_s = 0.0
        self.who = "it"
        self.trail = Trail()
        self._waits = False

    def asked(self) -> bool:
        """It is time for a question; whether one is to be sent, as none is open."""
        if self._waits:
            self.missed += 1
            return False
        self._waits = True
        self.number += 1
        return True

    def answered(self, number: int, step_s: float, load: Load | None = None) -> None:
        """An answer has come, with what the process has counted if that has changed."""
        if number == self.number:
            self._waits = False
            self.missed = 0
            self.step_s = step_s
        self.trail.heard(load, monotonic())
