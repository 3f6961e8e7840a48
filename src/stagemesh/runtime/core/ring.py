"""A set of small numbers that knows, at once, which of them comes next after any number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

_SHIFT: Final = 6
_MASK: Final = (1 << _SHIFT) - 1


class IdRing:
    """Replica numbers on a circle: ascending, and after the last comes the first.

    Bits in words of 64, and one bit for every word that has any: nothing here takes longer with
    ten thousand members than with ten.
    """

    __slots__ = ("_summary", "_words")

    def __init__(self, members: Iterable[int] = ()) -> None:
        """Begin with `members`."""
        self._words: dict[int, int] = {}
        self._summary = 0
        for member in members:
            self.add(member)

    def __bool__(self) -> bool:
        return self._summary != 0

    def __contains__(self, member: int) -> bool:
        return bool(self._words.get(member >> _SHIFT, 0) >> (member & _MASK) & 1)

    def __iter__(self) -> Iterator[int]:
        """Ascending."""
        for index in sorted(self._words):
            word = self._words[index]
            while word:
                lowest = word & -word
                yield (index << _SHIFT) + lowest.bit_length() - 1
                word ^= lowest

    def add(self, member: int) -> None:
        """Put a number in."""
        index = member >> _SHIFT
        self._words[index] = self._words.get(index, 0) | 1 << (member & _MASK)
        self._summary |= 1 << index

    def discard(self, member: int) -> None:
        """Take a number out."""
        index = member >> _SHIFT
        word = self._words.get(index, 0) & ~(1 << (member & _MASK))
        if word:
            self._words[index] = word
        elif self._words.pop(index, None) is not None:
            self._summary ^= 1 << index

    def after(self, number: int) -> int:
        """The next member above `number`, or the smallest when there is none; it must have one."""
        start = number + 1
        index = start >> _SHIFT
        word = self._words.get(index, 0) >> (start & _MASK)
        if word:
            return start + (word & -word).bit_length() - 1
        above = self._summary >> (index + 1)
        if above:
            index += (above & -above).bit_length()
        else:
            index = (self._summary & -self._summary).bit_length() - 1
        word = self._words[index]
        return (index << _SHIFT) + (word & -word).bit_length() - 1
