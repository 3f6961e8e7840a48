"""The feed: what rank 0 says arrives whole, in order and at every rank, whatever its size."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.runtime.ranks.commands import Added, Appended, Command, Step
from stagemesh.runtime.ranks.feed import INLINE_BYTES, FeedReader, FeedWriter, feed_pair
from stagemesh.spec.payload import ALIGNMENT, Buffer
from stagemesh.testing.connector_conformance import open_fds

NUM_RANKS = 3


def far_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a feed between hosts."""
    with socket.create_server(("127.0.0.2", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
    near.setblocking(False)  # noqa: FBT003  as one that comes in at a door
    return near, far


def mixed_pairs() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Ranks on this host and on another one, in turn."""
    while True:
        yield far_pair()
        yield feed_pair()


def near_pairs() -> Iterator[tuple[socket.socket, socket.socket]]:
    """All on this host."""
    while True:
        yield feed_pair()


class Feeds:
    """One writer and its readers."""

    def __init__(
        self,
        num_readers: int = NUM_RANKS,
        pairs_of: Callable[[], Iterator[tuple[socket.socket, socket.socket]]] = near_pairs,
    ) -> None:
        """Connect them."""
        makes = pairs_of()
        pairs = [next(makes) for _ in range(num_readers)]
        self.writer = FeedWriter([near for near, _ in pairs])
        self.readers = [FeedReader(far) for _, far in pairs]

    def say(self, *data: bytes, rid: str = "r") -> None:
        """Send an input with such buffers."""
        buffers = [
            Buffer(name=f"b{number}", dtype="uint8", shape=(len(each),), data=memoryview(each))
            for number, each in enumerate(data)
        ]
        heads = self.writer.hold(buffers)
        self.writer.add(Appended(rid=rid, meta={"n": 1}, heads=heads, last=True, raised=False))
        self.writer.flush()

    def close(self) -> None:
        """Close all ends."""
        self.writer.close()
        for reader in self.readers:
            reader.close()


@pytest.fixture(params=[near_pairs, mixed_pairs])
def feeds(request: pytest.FixtureRequest) -> Iterator[Feeds]:
    """Three readers."""
    with ExitStack() as stack:
        found = Feeds(pairs_of=request.param)
        stack.callback(found.close)
        yield found


def taken(reader: FeedReader) -> tuple[list[Command], memoryview]:
    """What a rank hears next."""
    found = reader.take()
    assert found is not None
    return found


def heard(reader: FeedReader) -> list[memoryview]:
    """The buffers of the input that a rank hears next."""
    commands, space = taken(reader)
    (appended,) = commands
    assert isinstance(appended, Appended)
    return [space[head.start : head.start + head.num_bytes] for head in appended.heads]


@pytest.mark.parametrize(
    "size",
    [0, 1, 63, 64, 65, 4096, *(INLINE_BYTES + more for more in range(-130, 131, 13)), 3_000_000],
)
def test_buffers_arrive_at_every_rank_and_can_only_be_read(feeds: Feeds, size: int) -> None:
    """Short ones in the message, long ones in a file that all of them share."""
    before = open_fds()
    first, second = bytes(range(256)) * (size // 256 + 1), b"\x07" * 5
    feeds.say(first[:size], second)
    for reader in feeds.readers:
        got, more = heard(reader)
        assert (bytes(got), bytes(more)) == (first[:size], second)
        assert got.readonly
        assert more.readonly
        del got, more
    assert open_fds() == before


def test_what_has_come_stays_as_it_is_while_more_comes(feeds: Feeds) -> None:
    """An engine may keep an input until it gives it back."""
    reader = feeds.readers[0]
    kept = []
    for number in range(5):
        feeds.say(bytes([number]) * 100)
        kept += heard(reader)
    assert [bytes(each) for each in kept] == [bytes([number]) * 100 for number in range(5)]


def test_what_is_said_between_two_writes_comes_at_once(feeds: Feeds) -> None:
    """In the order in which it was said; saying nothing sends nothing."""
    feeds.writer.flush()
    said: list[Command] = [
        Added(rid="r", params={"a": [1, None, "x"]}, raised=False),
        Step(),
        Step(),
    ]
    for each in said:
        feeds.writer.add(each)
    feeds.writer.flush()
    feeds.writer.flush()
    feeds.writer.add(Step())
    feeds.writer.flush()
    for reader in feeds.readers:
        assert taken(reader)[0] == said
        assert taken(reader)[0] == [Step()]


def test_commands_without_end_take_the_same_way_as_long_buffers(feeds: Feeds) -> None:
    """The parameters of a request may be long, too."""
    long = Added(rid="r", params={"prompt": "x" * 10 * INLINE_BYTES}, raised=False)
    feeds.writer.add(long)
    feeds.writer.flush()
    for reader in feeds.readers:
        assert taken(reader)[0] == [long]


def test_an_end_is_heard_on_both_sides(feeds: Feeds) -> None:
    """A rank hears that rank 0 is gone, and rank 0 that a rank is."""
    feeds.readers[1].close()
    feeds.writer.add(Step())
    with pytest.raises(OSError, match="Broken pipe"):
        feeds.writer.flush()
    assert taken(feeds.readers[0])[0] == [Step()]
    feeds.writer.close()
    assert feeds.readers[0].take() is None


def test_rank_0_waits_for_all_to_be_ready(feeds: Feeds) -> None:
    """One that is gone instead is an error."""
    for reader in feeds.readers:
        reader.ready()
    feeds.writer.await_ready()
    feeds.readers[0].ready()
    feeds.readers[1].close()
    with pytest.raises(ConnectionResetError):
        feeds.writer.await_ready()


def test_a_rank_is_in_a_step_only_while_it_is_away(feeds: Feeds) -> None:
    """Loading is none."""
    reader = feeds.readers[0]
    assert reader.away_s == 0
    feeds.writer.add(Step())
    feeds.writer.flush()
    taken(reader)
    first = reader.away_s
    assert 0 < first <= reader.away_s


@given(st.lists(st.lists(st.integers(0, 2 * INLINE_BYTES), max_size=4), max_size=6))
def test_any_inputs_arrive_in_order(sizes: list[list[int]]) -> None:
    """Whatever mixture of short and long ones."""
    feeds = Feeds(2, mixed_pairs)
    try:
        for number, each in enumerate(sizes):
            feeds.say(*(bytes([number + 1]) * size for size in each))
            for reader in feeds.readers:
                got = [bytes(one) for one in heard(reader)]
                assert got == [bytes([number + 1]) * size for size in each]
    finally:
        feeds.close()


def test_buffers_are_aligned_in_memory() -> None:
    """The first byte of each is at a multiple of what payloads promise."""
    for pair, size in product((near_pairs, mixed_pairs), (100, 2 * INLINE_BYTES)):
        feeds = Feeds(1, pair)
        feeds.say(bytes(size), bytes(size))
        commands, space = taken(feeds.readers[0])
        (appended,) = commands
        assert isinstance(appended, Appended)
        assert [head.start % ALIGNMENT for head in appended.heads] == [0, 0]
        assert space.c_contiguous
        feeds.close()


def test_a_way_to_another_host_that_breaks_off_is_an_end() -> None:
    """Also in the middle of a message, or when the other end has not heard everything."""
    near, far = far_pair()
    reader = FeedReader(far)
    near.setblocking(True)  # noqa: FBT003  signature of the standard library
    near.sendall((1000).to_bytes(8, "little") + bytes(10))
    near.close()
    assert reader.take() is None
    reader.close()
    near, far = far_pair()
    reader = FeedReader(far)
    reader.ready()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
    near.close()  # by a reset
    assert reader.take() is None
    reader.close()
