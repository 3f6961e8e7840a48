"""One check of the machine or of what is installed on it."""

from __future__ import annotations

from enum import Enum

from stagemesh.spec.frozen import frozen


class State(Enum):
    """How a check ended."""

    OK = "ok"
    """All is well."""
    WARNING = "warning"
    """Something will not work, or not well."""
    FAILURE = "failure"
    """Nothing can run before this is put right."""


@frozen
class Check:
    """One line of `doctor`."""

    name: str
    """What was looked at."""
    state: State
    """How it is."""
    message: str
    """What was found."""
    help: str | None = None
    """What to do about it."""
