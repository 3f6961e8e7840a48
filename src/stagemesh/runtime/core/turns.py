"""The order of turns in full-duplex sessions: one at a time, in the order in which they came."""

from __future__ import annotations

from collections import deque


class Turns:
    """Turns that are not settled, by session."""

    def __init__(self) -> None:
        """There are none."""
        self._lines: dict[str, deque[str]] = {}

    @property
    def num_behind(self) -> int:
        """Those that wait for one before them."""
        return sum(len(line) - 1 for line in self._lines.values())

    def came(self, session: str, name: str) -> bool:
        """Line a turn up; whether nobody is before it."""
        line = self._lines.setdefault(session, deque())
        line.append(name)
        return line[0] == name

    def over(self, session: str, name: str) -> str | None:
        """A turn is settled; return the one whose turn it is now, if that changes by it."""
        line = self._lines[session]
        was_first = line[0] == name
        line.remove(name)
        if not line:
            del self._lines[session]
            return None
        return line[0] if was_first else None
