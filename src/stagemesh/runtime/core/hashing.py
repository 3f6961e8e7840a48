"""Routing by a key: consistent hashing with a bound on load.

Every replica owns points on a circle of hashes, and a key belongs to the replica of the next point.
So the same key reaches the same replica, in every process and after every restart, and when a
replica goes only its keys move. A replica that holds its bound is passed over to the next on the
circle, so no key can flood one replica.
"""

from __future__ import annotations

import functools
import struct
from array import array
from bisect import bisect_left
from hashlib import blake2b
from typing import Final

from stagemesh.runtime.core.choosers import Chooser

_POINTS: Final = 64
"""Points of one replica: enough that the shares of four replicas differ little."""
_DIGEST: Final = struct.Struct(">8Q")
_KEY_BYTES: Final = 8
_REPLICA_BITS: Final = 24
_REPLICA: Final = (1 << _REPLICA_BITS) - 1
_WORD_BITS: Final = 64
_PART_BITS: Final = 3
"""Of every part of the circle: 4 to 8 points, which lie together in a line or two of the cache."""
_REMEMBERED: Final = 256
"""Replicas whose points are kept, for those that come and go."""


@functools.lru_cache(maxsize=_REMEMBERED)
def points_of(replica: int) -> tuple[int, ...]:
    """The points of a replica, the same everywhere and always: a hash, then its number."""
    found: list[int] = []
    for part in range(_POINTS // 8):
        digest = blake2b(f"{replica}/{part}".encode(), digest_size=_DIGEST.size).digest()
        found += [word & ~_REPLICA | replica for word in _DIGEST.unpack(digest)]
    return tuple(sorted(found))


class Hashed(Chooser):
    """The replica that the key belongs to, unless it holds its bound."""

    def __init__(self, load_bound: float) -> None:
        """No replica holds more than `load_bound` times the even share, rounded up."""
        if load_bound < 1:
            raise ValueError(f"a load bound is at least 1: got `{load_bound}`")
        self._factor = load_bound.as_integer_ratio()
        self._backlogs: dict[int, int] = {}
        self._total = 0
        self._points = array("Q")
        self._drawn: set[int] = set()
        self._is_drawn = True
        # Where each equal part of the circle begins, and where the last one ends: a search of the
        # whole would miss the cache at every step.
        self._starts = array("L", [0, 0])
        self._shift = _WORD_BITS

    def add(self, replica: int, backlog: int) -> None:
        """A replica has become eligible: it takes back the keys that were its own."""
        self._backlogs[replica] = backlog
        self._total += backlog
        self._is_drawn = False

    def remove(self, replica: int, backlog: int) -> None:
        """It is eligible no more: its keys go to those that follow."""
        del self._backlogs[replica]
        self._total -= backlog
        self._is_drawn = False

    def moved(self, replica: int, old: int, new: int) -> None:
        """Its backlog has changed."""
        self._backlogs[replica] = new
        self._total += new - old

    def choose(self, key: str, cost: int) -> int:
        """The first replica from the key on that is below the bound; one always is."""
        if not self._is_drawn:
            self._draw()
        up, down = self._factor
        backlogs, points = self._backlogs, self._points
        bound = -(-up * (self._total + cost) // (down * len(backlogs)))
        digest = blake2b(key.encode(errors="surrogatepass"), digest_size=_KEY_BYTES).digest()
        word = int.from_bytes(digest, "big")
        part, last = word >> self._shift, len(points)
        place = bisect_left(points, word, self._starts[part], self._starts[part + 1])
        while True:
            replica = points[place if place < last else place - last] & _REPLICA
            if backlogs[replica] < bound:
                return replica
            place += 1

    def _draw(self) -> None:
        """Draw the circle anew: once for all that came and went since the last choice."""
        members = self._backlogs.keys()
        kept = self._points.tolist()
        if not self._drawn <= members:
            kept = [point for point in kept if point & _REPLICA in members]
        for replica in members - self._drawn:
            kept += points_of(replica)
        kept.sort()
        bits = max(len(kept).bit_length() - _PART_BITS, 0)
        self._shift = _WORD_BITS - bits
        firsts = (part << self._shift for part in range(1 << bits))
        self._starts = array("L", [*(bisect_left(kept, first) for first in firsts), len(kept)])
        self._points = array("Q", kept)
        self._drawn = set(members)
        self._is_drawn = True
