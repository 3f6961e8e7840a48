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
_REMEMBERED: Final = 256
"""Replicas whose points are kept, for those that come and go."""


@functools.lru_cache(maxsize=_REMEMBERED)
def points_of(replica: int) -> tuple[int, ...]:
    """The points of a replica, the same everywhere and always: a hash, then its number."""
    found: list[int] = []
    for part in range(_POINTS // 8):
        digest = blake2b(f"{replica}/{part}".encode(), digest_size=_DIGEST.size).digest()
        found += [word & ~_REPLICA | replica for word in _DIGEST.unpack(digest)]
    return tuple(found)


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
        # Where each equal part of the circle begins: a search would miss the cache at every step.
        self._starts = array("L", [0])
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
        place, last = self._starts[word >> self._shift], len(points)
        while place < last and points[place] < word:
            place += 1
        while True:
            replica = points[place if place < last else place - last] & _REPLICA
            if backlogs[replica] < bound:
                return replica
            place += 1

    def _draw(self) -> None:
        """Draw the circle anew: once for all that came and went since the last choice."""
        kept = [point for point in self._points if point & _REPLICA in self._backlogs]
        for replica in self._backlogs.keys() - self._drawn:
            kept += points_of(replica)
        kept.sort()
        bits = len(kept).bit_length()
        starts = array("L")
        self._shift = _WORD_BITS - bits
        for place, point in enumerate(kept):
            while len(starts) <= point >> self._shift:
                starts.append(place)
        while len(starts) < 1 << bits:
            starts.append(len(kept))
        self._points, self._starts = array("Q", kept), starts
        self._drawn = set(self._backlogs)
        self._is_drawn = True
