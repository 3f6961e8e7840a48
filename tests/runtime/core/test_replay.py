"""What is kept of a session for a client that comes back."""

from __future__ import annotations

import pytest

from stagemesh.runtime.core.replay import Replay


def sent(most_bytes: int = 100, ttl_s: float = 10) -> Replay:
    """Three events, at 0, 1 and 2 seconds."""
    replay = Replay(most_bytes, ttl_s)
    for at, data in enumerate((b"aaaa", b"bbbb", b"cccc")):
        replay.sent(data, at)
    return replay


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (-1, (b"aaaa", b"bbbb", b"cccc")),
        (0, (b"bbbb", b"cccc")),
        (2, ()),
        (3, None),
        (-2, None),
    ],
)
def test_what_came_after_an_event_is_repeated(after: int, found: tuple[bytes, ...] | None) -> None:
    """An event that never was is no place to go on from."""
    replay = sent()
    assert replay.after(after, 2) == found
    assert replay.next == 3


def test_the_oldest_go_when_there_are_too_many_bytes() -> None:
    """Even all of them, by one that is too large itself."""
    replay = sent(most_bytes=8)
    assert replay.after(-1, 2) is None
    assert replay.after(0, 2) == (b"bbbb", b"cccc")
    replay.sent(b"d" * 9, 2)
    assert replay.after(2, 2) is None
    assert replay.after(3, 2) == ()


def test_what_is_too_old_is_not_kept() -> None:
    """Each event has its own time."""
    replay = sent()
    assert replay.after(-1, 9.9) is not None
    assert replay.after(-1, 10) is None
    assert replay.after(0, 10.9) == (b"bbbb", b"cccc")
    assert replay.after(2, 100) == ()
