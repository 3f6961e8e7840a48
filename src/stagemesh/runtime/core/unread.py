"""What a user has not read of one request, and which of it the producers may follow with more.

Producers may have half of the bound on its way, and the other half may lie here with its credit
given back at once; the credit of what exceeds that half is kept until the user has read so far. So
both together stay within the bound, but for a single output that is larger than its half.
"""

from __future__ import annotations

from collections import deque
from typing import Final


class Unread:
    """Outputs in the order in which they came, by size alone."""

    def __init__(self, most_bytes: int) -> None:
        """Nothing has come; `most_bytes` may be unread."""
        self._half: Final = most_bytes // 2
        self._credited: deque[int] = deque()
        self._kept: deque[int] = deque()
        self._credited_bytes = 0
        self._kept_bytes = 0

    @property
    def used(self) -> int:
        """Bytes that are unread."""
        return self._credited_bytes + self._kept_bytes

    @property
    def num_kept(self) -> int:
        """Outputs whose credit is kept, which are the last ones."""
        return len(self._kept)

    def came(self, size: int) -> bool:
        """An output has come; whether its credit is given back now."""
        if self._kept or self._credited_bytes + size > self._half:
            self._kept.append(size)
            self._kept_bytes += size
            return False
        self._credited.append(size)
        self._credited_bytes += size
        return True

    def read(self) -> int:
        """The user has read the first one; return how many of those that were kept are credited."""
        num_credited = 0
        if self._credited:
            self._credited_bytes -= self._credited.popleft()
        else:
            self._kept_bytes -= self._kept.popleft()
            num_credited = 1
        while self._kept and self._credited_bytes + self._kept[0] <= self._half:
            size = self._kept.popleft()
            self._kept_bytes -= size
            self._credited.append(size)
            self._credited_bytes += size
            num_credited += 1
        return num_credited

    def clear(self) -> int:
        """Nobody reads any more; return how many of those that were kept are credited."""
        num_kept = len(self._kept)
        self._credited.clear()
        self._kept.clear()
        self._credited_bytes = self._kept_bytes = 0
        return num_kept


def share_of(most_bytes: int, num_producers: int) -> int:
    """Bytes that each producer of a request may have on its way."""
    return most_bytes // 2 // max(num_producers, 1)
