"""What attention over a cut sequence must cost each rank by formula, and whether it did.

With S tokens on P ranks that share evenly and H heads of size D, a rank of a Ulysses group of U
sends 4 B S/P H D (U-1)/U numbers for each attention, and one of a ring of R 2 B S/R H/U D (R-1).
"""

from __future__ import annotations

from collections.abc import Mapping

from stagemesh.parallel.mesh.communicator import Traffic
from stagemesh.parallel.sequence.cuts import head_cuts
from stagemesh.spec.frozen import frozen


@frozen
class AttentionShape:
    """All that the cost of one attention depends on."""

    batch: int
    """Sequences."""
    lengths: tuple[int, ...]
    """Tokens of every rank, by place."""
    ulysses: int
    """Ranks of a Ulysses group."""
    heads: int
    """Heads of queries."""
    kv_heads: int
    """Heads of keys and values."""
    head_bytes: int
    """Bytes of one head of one token."""
    joint: int | None = None
    """Tokens of a joint stream."""
    packed: bool = True
    """Whether queries, keys and values travel in one operation."""

    def ulysses_traffic(self, place: int) -> Traffic:
        """Return what the rank at a place of the whole sequence does in its Ulysses group."""
        size = self.ulysses
        if size == 1:
            return Traffic()
        ring, own = divmod(place, size)
        traded = self.lengths[ring * size : (ring + 1) * size]
        cuts = head_cuts(self.heads, self.kv_heads, size)
        others = [n for n in range(size) if n != own]
        away = traded[own] * sum(cuts[n].heads + 2 * cuts[n].kv_heads for n in others)
        back = cuts[own].heads * sum(traded[n] for n in others)
        words = 0 if self.joint is None else self.joint * cuts[own].heads * len(others)
        calls = (1 if self.packed else 3) + 1 + (self.joint is not None)
        return Traffic(calls=calls, sent_bytes=self.batch * self.head_bytes * (away + back + words))

    def ring_traffic(self, place: int) -> Traffic:
        """Return what the rank at a place of the whole sequence does in its ring."""
        size = len(self.lengths) // self.ulysses
        ring, own = divmod(place, self.ulysses)
        kv_heads = head_cuts(self.heads, self.kv_heads, self.ulysses)[own].kv_heads
        chunks = [sum(self.lengths[n * self.ulysses : (n + 1) * self.ulysses]) for n in range(size)]
        tokens = sum(chunks[(ring - step) % size] for step in range(size - 1))
        return Traffic(
            calls=size - 1, sent_bytes=2 * self.batch * self.head_bytes * kv_heads * tokens
        )


class Ledger:
    """What is expected along each axis, added up, to be compared with what was counted."""

    def __init__(self) -> None:
        self._expected: dict[str, Traffic] = {}

    def expect(self, axis: str, traffic: Traffic) -> None:
        """Add what will be done along an axis."""
        self._expected[axis] = self._expected.get(axis, Traffic()) + traffic

    def differences(self, counted: Mapping[str, Traffic]) -> list[str]:
        """Return what does not match exactly, one line for each axis."""
        return [
            f"`{axis}`: got `{got.calls}` calls and `{got.sent_bytes}` bytes,"
            f" expected `{want.calls}` and `{want.sent_bytes}`"
            for axis in sorted({*self._expected, *counted})
            if (want := self._expected.get(axis, Traffic()))
            != (got := counted.get(axis, Traffic()))
        ]
