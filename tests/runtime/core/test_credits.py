"""Credits of an edge."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stagemesh.runtime.core.credits import GapError, Grant, Inflow, Limits, Outflow, StreamKey
from stagemesh.runtime.core.windows import StageWindow

A, B, C = ("a", 1), ("b", 2), ("c", 3)


def outflow(limits: Limits, *streams: StreamKey) -> Outflow:
    """An edge with these streams, oldest first."""
    flow = Outflow(limits)
    for stream in streams or (A, B, C):
        flow.open(stream)
    return flow


def test_a_stream_has_a_window_of_its_own() -> None:
    """Its next chunk waits for its own credit alone, and holds up nobody else."""
    flow = outflow(Limits(chunks=2))
    assert [flow.offer(A, 1) for _ in range(3)] == [True, True, False]
    assert flow.offer(B, 1)
    assert flow.granted(B, 1) == []
    assert flow.granted(A, 1) == [A]
    assert flow.in_flight(A) == 2


def test_a_large_chunk_goes_alone() -> None:
    """What is larger than the window of bytes is not refused for ever."""
    flow = outflow(Limits(stream_bytes=4))
    assert flow.offer(A, 9)
    assert not flow.offer(A, 1)
    assert flow.granted(A, 9) == [A]


def test_who_waits_for_the_edge_is_not_overtaken() -> None:
    """A small chunk does not slip past a large one that has waited longer."""
    flow = outflow(Limits(edge_bytes=4))
    assert flow.offer(A, 3)
    assert not flow.offer(B, 4)
    assert not flow.offer(C, 1)
    assert flow.granted(A, 3) == [B]
    assert flow.granted(B, 4) == [C]
    assert flow.used == 1


def test_the_oldest_goes_beyond_the_budget() -> None:
    """With one chunk, when it has none in flight; the next oldest waits until that is back."""
    flow = outflow(Limits(edge_bytes=4))
    assert flow.offer(B, 4)
    assert flow.offer(A, 3)
    assert not flow.offer(A, 1)
    assert flow.close(A) == []
    assert not flow.offer(C, 1)
    assert flow.granted(B, 4) == [C]
    assert flow.granted(A, 3) == []
    assert flow.used == 1


def test_what_is_in_flight_of_a_closed_stream_comes_back_yet() -> None:
    """Its budget is in use until then; what waited of it never goes."""
    flow = outflow(Limits(chunks=1, edge_bytes=2))
    assert flow.offer(A, 2)
    assert not flow.offer(A, 1)
    assert flow.close(A) == []
    assert flow.close(A) == []
    assert (flow.used, flow.in_flight(A), flow.in_flight(C)) == (2, 1, 0)
    assert not flow.offer(C, 1)
    assert flow.granted(A, 2) == [C]
    for stream in (B, C):
        flow.close(stream)
    flow.granted(C, 1)
    assert flow.idle


def test_nothing_is_in_flight_when_the_consumer_is_gone() -> None:
    """Nor does anything wait."""
    flow = outflow(Limits(chunks=1))
    flow.offer(A, 1)
    flow.offer(A, 1)
    flow.reset()
    assert (flow.idle, flow.used) == (True, 0)


def test_requests_enter_a_window_in_order() -> None:
    """A younger one waits for its turn although there is room, so the oldest is never shut out."""
    flow = outflow(Limits(window=StageWindow(requests=1)))
    assert not flow.offer(B, 1)
    assert flow.offer(A, 1)
    assert flow.offer(A, 1)
    assert flow.close(A) == []
    assert flow.granted(A, 1) == []
    assert flow.granted(A, 1) == [B]


def test_a_window_of_chunks_keeps_a_place_for_the_oldest() -> None:
    """Younger ones have all the others."""
    flow = outflow(Limits(window=StageWindow(chunks=2)))
    assert flow.offer(B, 1)
    assert not flow.offer(C, 1)
    assert flow.offer(A, 1)
    assert flow.granted(A, 1) == []
    assert flow.granted(B, 1) == [C]


class Counted(StageWindow):
    """Counts how often it is asked for a place."""

    asked: ClassVar[list[int]] = []

    def admits_chunk(self, total: int, *, is_oldest: bool, oldest_has_none: bool) -> bool:
        """Count, and answer."""
        self.asked.append(total)
        return super().admits_chunk(total, is_oldest=is_oldest, oldest_has_none=oldest_has_none)


@pytest.mark.parametrize(
    ("limits", "num_going"),
    [
        (Limits(chunks=1, window=Counted(chunks=5000)), 1),
        (Limits(window=Counted(chunks=1)), 1),
        (Limits(window=Counted(requests=1)), 0),
        (Limits(edge_bytes=2, window=Counted(chunks=5000)), 2),
    ],
    ids=["own windows", "a window of chunks", "a window of requests", "the edge"],
)
def test_who_cannot_go_is_not_looked_at(limits: Limits, num_going: int) -> None:
    """However many wait: credit costs what it moves, and one look at who does not."""
    streams = [(f"r{number}", number) for number in range(1000)]
    flow = outflow(limits, *streams)
    first = streams[0]
    gone = [stream for stream in streams if flow.offer(stream, 1)]
    for stream in gone:
        flow.offer(stream, 1)
    Counted.asked.clear()
    assert len(flow.granted(first, 1)) == num_going
    assert len(Counted.asked) <= num_going + 2


def test_a_chunk_is_credited_once_and_in_any_order() -> None:
    """When it is done with, or when its stream is dropped."""
    flow = Inflow()
    for seq in range(3):
        flow.received(A, seq, 10 + seq, last=seq == 2)
    assert flow.consumed(A, 1) == Grant(stream=A, size=11)
    assert flow.consumed(A, 1) is None
    assert flow.drop(A) == [Grant(stream=A, size=10), Grant(stream=A, size=12)]
    assert flow.drop(A) == []
    assert flow.consumed(A, 0) is None
    assert flow.idle


@pytest.mark.parametrize(
    ("chunks", "told"),
    [
        ([(1, False)], "`1` came in place of `0`"),
        ([(0, False), (0, False)], "`0` came in place of `1`"),
        ([(0, True), (1, False)], "`1` came after the last one"),
    ],
)
def test_a_gap_is_refused(chunks: list[tuple[int, bool]], told: str) -> None:
    """So is a repetition, and anything after the end."""
    flow = Inflow()
    *good, bad = chunks
    for seq, last in good:
        flow.received(A, seq, 1, last=last)
    with pytest.raises(GapError, match=told):
        flow.received(A, bad[0], 1, last=bad[1])


def test_streams_that_lost_their_producer_are_named() -> None:
    """Those that had come to their end are whole."""
    flow = Inflow()
    flow.received(A, 0, 1, last=True)
    flow.received(B, 0, 1, last=False)
    assert flow.reset() == [B]
    assert flow.idle


class AnyEdge(RuleBasedStateMachine):
    """Any order of offers, credit and closing against a plain account of the edge."""

    @initialize(
        chunks=st.integers(1, 3),
        stream_bytes=st.integers(1, 8),
        edge_bytes=st.integers(1, 10),
        window=st.none()
        | st.builds(
            StageWindow,
            requests=st.none() | st.integers(1, 3),
            chunks=st.none() | st.integers(1, 3),
        ),
    )
    def begin(
        self, chunks: int, stream_bytes: int, edge_bytes: int, window: StageWindow | None
    ) -> None:
        """Make both ends of the account."""
        self.limits = Limits(
            chunks=chunks, stream_bytes=stream_bytes, edge_bytes=edge_bytes, window=window
        )
        self.flow = Outflow(self.limits)
        self.number = 0
        self.open: list[StreamKey] = []
        self.waits: dict[StreamKey, int] = {}
        self.sent: dict[StreamKey, list[int]] = {}

    def go(self, streams: list[StreamKey]) -> None:
        """What waited has been named."""
        for stream in streams:
            self.sent.setdefault(stream, []).append(self.waits.pop(stream))

    @rule()
    def begin_stream(self) -> None:
        """A request is submitted."""
        self.number += 1
        self.open.append((f"r{self.number}", self.number))
        self.flow.open(self.open[-1])

    @precondition(lambda self: bool(set(self.open) - set(self.waits)))
    @rule(data=st.data(), size=st.integers(1, 6))
    def offer(self, data: st.DataObject, size: int) -> None:
        """A stream has a chunk."""
        stream = data.draw(st.sampled_from(sorted(set(self.open) - set(self.waits))))
        self.waits[stream] = size
        if self.flow.offer(stream, size):
            self.go([stream])

    @precondition(lambda self: any(self.sent.values()))
    @rule(data=st.data())
    def grant(self, data: st.DataObject) -> None:
        """The consumer is done with a chunk."""
        stream = data.draw(st.sampled_from(sorted(key for key, held in self.sent.items() if held)))
        place = data.draw(st.integers(0, len(self.sent[stream]) - 1))
        self.go(self.flow.granted(stream, self.sent[stream].pop(place)))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        """A stream is over, or its request is cancelled."""
        stream = data.draw(st.sampled_from(self.open))
        self.open.remove(stream)
        self.waits.pop(stream, None)
        self.go(self.flow.close(stream))

    @invariant()
    def limits_hold(self) -> None:
        """Nothing but one chunk is ever beyond the budget, and no window is overfull."""
        held = {stream: sizes for stream, sizes in self.sent.items() if sizes}
        total = sum(map(sum, held.values()))
        assert self.flow.used == total
        assert total <= self.limits.edge_bytes + max(map(max, held.values()), default=0)
        for sizes in held.values():
            assert len(sizes) <= self.limits.chunks
            assert len(sizes) == 1 or sum(sizes) <= self.limits.stream_bytes
        window = self.limits.window
        if window is not None:
            chunks = sum(map(len, held.values()))
            assert window.chunks is None or chunks <= window.chunks
            assert window.requests is None or len(held) <= window.requests

    @invariant()
    def the_oldest_never_waits_for_the_younger_for_ever(self) -> None:
        """When it waits it has a chunk in flight, or chunks of closed streams are coming back."""
        if self.open and self.open[0] in self.waits:
            closed = set(self.sent) - set(self.open)
            assert self.sent.get(self.open[0]) or any(self.sent[one] for one in closed)


TestEdge = AnyEdge.TestCase
