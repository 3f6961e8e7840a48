"""What a user has not read, and who gets credit for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stagemesh.runtime.core.unread import Unread, share_of


def test_half_is_credited_at_once_and_the_rest_as_it_is_read() -> None:
    """So that the producer never waits for a user who keeps up."""
    unread = Unread(20)
    assert [unread.came(4) for _ in range(5)] == [True, True, False, False, False]
    assert (unread.used, unread.num_kept) == (20, 3)
    assert [unread.read() for _ in range(5)] == [1, 1, 1, 0, 0]
    assert (unread.used, unread.num_kept) == (0, 0)


def test_a_large_output_is_credited_when_it_is_read() -> None:
    """Nothing follows it before."""
    unread = Unread(20)
    assert not unread.came(15)
    assert not unread.came(1)
    assert unread.read() == 2
    assert unread.used == 1


def test_whoever_goes_gives_all_credit_back() -> None:
    """Once."""
    unread = Unread(4)
    for _ in range(4):
        unread.came(1)
    assert unread.clear() == 2
    assert (unread.used, unread.clear()) == (0, 0)


def test_the_producers_of_a_request_share_half_of_the_bound() -> None:
    """A stage without an output to the caller has no share to speak of."""
    assert [share_of(100, count) for count in (0, 1, 3)] == [50, 50, 16]


@given(
    st.integers(min_value=2, max_value=64),
    st.lists(st.one_of(st.integers(min_value=1, max_value=9), st.none()), max_size=200),
)
def test_what_is_unread_or_on_its_way_stays_within_the_bound(
    most_bytes: int, events: list[int | None]
) -> None:
    """Whenever the user reads (`None`); every credit comes once, and in the end all of it."""
    unread, window = Unread(most_bytes), share_of(most_bytes, 1)
    queue: list[int] = []
    kept: list[int] = []
    without_credit = 0
    for size in events:
        if size is None and queue:
            queue.pop(0)
            for _ in range(unread.read()):
                without_credit -= kept.pop(0)
        elif size is not None and (not without_credit or without_credit + size <= window):
            queue.append(size)
            if not unread.came(size):
                kept.append(size)
                without_credit += size
        assert unread.used == sum(queue)
        assert unread.used <= most_bytes or max(queue) > window
        assert unread.num_kept == len(kept)
    for _ in range(len(queue)):
        for _ in range(unread.read()):
            kept.pop(0)
    assert not kept
