"""Diagnostics: what the user got wrong, as data. Rendered to text and JSON from the same values.

A message is lower case without a full stop, with the got and the allowed value in backticks;
`notes` point to other places, `help` says what to do. Codes are stable: two letters for the topic
and three digits (`CF` configuration files, `AX` axes, `PL` plan, `MD` models, `RT` requests and
run time, `CL` command line).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final

from stagemesh.spec.frozen import frozen

if TYPE_CHECKING:
    from stagemesh.spec.origin import Origin


class Severity(Enum):
    """How bad it is: an error stops the command, a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@frozen
class Note:
    """A second place that belongs to the finding."""

    message: str
    """What is to be seen there."""
    origin: Origin | None = None
    """The place, when there is one."""


@frozen
class Diagnostic:
    """One finding about the user's input."""

    code: str
    """Stable code, such as `AX003`."""
    message: str
    """What is wrong, standing alone."""
    severity: Severity = Severity.ERROR
    """Whether it stops the command."""
    origin: Origin | None = None
    """Where the value at fault was written."""
    notes: tuple[Note, ...] = ()
    """Other places that matter."""
    help: str | None = None
    """What to do about it."""
    excerpt: str | None = None
    """The line at fault, of a text out of which no document could be made."""

    @property
    def is_error(self) -> bool:
        """True when this finding stops the command."""
        return self.severity is Severity.ERROR

    def __str__(self) -> str:
        """The message with its code and place on one line."""
        place = f" ({self.origin})" if self.origin is not None else ""
        return f"{self.severity.value}[{self.code}]: {self.message}{place}"


_LISTED: Final = 16
"""Names that a help sentence lists; of more, only those that are near."""


def nearest(got: str, names: Iterable[str]) -> str | None:
    """Return the name that was meant: one that differs in case alone, else one that is near."""
    known = sorted(names)
    folded = {name.casefold(): name for name in reversed(known)}
    if got.casefold() in folded:
        return folded[got.casefold()]
    near = difflib.get_close_matches(got, known, n=1, cutoff=0.6)
    near = near or difflib.get_close_matches(got.casefold(), folded, n=1, cutoff=0.6)
    return folded[near[0].casefold()] if near else None


def did_you_mean(got: str, allowed: Iterable[str]) -> str:
    """Return a help sentence: the nearest allowed name if one is near, and all if they are few."""
    names = sorted(allowed)
    near = nearest(got, names)
    meant = "" if near is None else f"did you mean `{near}`?"
    if not names:
        return "there is nothing that could be written here; leave it out"
    if len(names) > _LISTED:
        return meant or f"none of the `{len(names)}` names allowed here is near"
    listed = ", ".join(f"`{name}`" for name in names)
    return f"{meant} allowed here: {listed}".lstrip()


def counted(number: int, word: str, several: str | None = None) -> str:
    """Say "`1` rank", "`2` ranks", with the number set off as a value."""
    return f"`{number}` {word if number == 1 else several or f'{word}s'}"
