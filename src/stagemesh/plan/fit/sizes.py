"""Which numbers are tried: products of sizes, numbers of ranks, smaller ones, choices of axes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

_SMALL: Final = 8
"""Sizes up to which all are tried instead of a larger one."""
_FEW: Final = 16
"""Devices up to which every number of ranks is tried."""

_Item = TypeVar("_Item")


def below(size: int) -> list[int]:
    """Return sizes to try instead of one: itself, its halves, and all from 8 downwards."""
    halves = [size >> shift for shift in range(size.bit_length()) if size >> shift > _SMALL]
    return [*halves, *range(min(size, _SMALL), 0, -1)]


def products(count: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to choose so many numbers from 1 whose product is at most `most`."""
    if count == 0:
        yield ()
        return
    for first in range(1, most + 1):
        for rest in products(count - 1, most // first):
            yield (first, *rest)


def is_usual(world: int, most: int) -> bool:
    """Tell whether so many ranks are tried: of many devices those made of twos and threes."""
    if most <= _FEW or most % world == 0:
        return True
    for factor in (2, 3):
        while world % factor == 0:
            world //= factor
    return world == 1


def subsets(items: Iterable[_Item]) -> Iterator[tuple[_Item, ...]]:
    """Yield every choice of them, none first."""
    listed = list(items)
    for count in range(len(listed) + 1):
        yield from itertools.combinations(listed, count)
