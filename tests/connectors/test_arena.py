"""Page bookkeeping of the arena."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stagemesh.connectors._arena import PageAllocator


def naive_first_fit(taken: set[int], num_pages: int, wanted: int) -> int | None:
    """The lowest gap, by looking at every page."""
    for first in range(num_pages - wanted + 1):
        if not taken & set(range(first, first + wanted)):
            return first
    return None


@given(
    num_pages=st.integers(1, 70),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 20)), max_size=60),
)
def test_pages_are_the_first_gap_and_never_given_twice(
    num_pages: int, steps: list[tuple[bool, int]]
) -> None:
    """Every answer equals that of a search page by page, whatever was freed in between."""
    pages = PageAllocator(num_pages)
    given_out: dict[int, set[int]] = {}
    for allocate, number in steps:
        taken = set().union(*given_out.values())
        if allocate:
            first = pages.allocate(number)
            assert first == naive_first_fit(taken, num_pages, number)
            if first is not None:
                given_out[first] = set(range(first, first + number))
        elif given_out:
            first = sorted(given_out)[number % len(given_out)]
            pages.free(first)
            del given_out[first]
        assert pages.num_free == num_pages - sum(map(len, given_out.values()))
