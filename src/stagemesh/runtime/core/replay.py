"""What was sent in a session and is kept for a client that comes back. Pure: times are told.

Events are numbered from 0. The oldest ones go when there are too many bytes, or when they are too
old: a client that has not seen them by then cannot go on where it was.
"""

from __future__ import annotations

from collections import deque
from typing import Final


class Replay:
    """The last events of one session."""

    def __init__(self, most_bytes: int, ttl_s: float) -> None:
        """Nothing was sent."""
        self._most_bytes: Final = most_bytes
        self._ttl_s: Final = ttl_s
        self._kept: deque[tuple[float, bytes]] = deque()
        self._num_bytes = 0
        self.next: int = 0
        """Number of the next event."""

    def sent(self, data: bytes, now: float) -> None:
        """An event is sent, or would have been if somebody were there."""
        self._kept.append((now, data))
        self._num_bytes += len(data)
        self.next += 1
        self._tidy(now)

    def after(self, number: int, now: float) -> tuple[bytes, ...] | None:
        """What has come after an event, `-1` for all; `None` when some of that is not kept."""
        self._tidy(now)
        missed = self.next - 1 - number
        if not 0 <= missed <= len(self._kept):
            return None
        return tuple(data for _, data in self._kept)[len(self._kept) - missed :]

    def _tidy(self, now: float) -> None:
        while self._kept and (
            self._num_bytes > self._most_bytes or now - self._kept[0][0] >= self._ttl_s
        ):
            self._num_bytes -= len(self._kept.popleft()[1])
