"""What stages count, and what is made of it where it is heard."""

from __future__ import annotations

from msgspec.structs import replace

from stagemesh.runtime.load import BUCKETS_S, CALLER, Clock, Counts, Load, Trail
from stagemesh.runtime.marks import MarkLog, told_here
from stagemesh.runtime.messages import Hop, Key

KEY = Key(rid="r", epoch=1)


def test_times_fall_into_the_bucket_whose_bound_they_do_not_pass() -> None:
    """A bound belongs to its own bucket; what passes all of them is counted all the same."""
    clock = Clock()
    for seconds in (0.0, BUCKETS_S[0], BUCKETS_S[1], 1e9):
        clock.add(seconds)
    found = clock.times
    assert found.buckets[:2] == [2, 1]
    assert found.buckets[-1] == 1
    assert found.count == 4
    assert found.total_s == sum((BUCKETS_S[0], BUCKETS_S[1], 1e9))


def test_only_news_are_told() -> None:
    """Nothing before anything was counted, and each change once."""
    counts = Counts()
    assert counts.news() is None
    counts.loop.added += 2
    counts.loop.started += 1
    load = counts.news()
    assert load is not None
    assert (load.waiting, load.running) == (1, 1)
    assert counts.news() is None
    counts.loop.over += 2
    counts.loop.over_started += 1
    load = counts.news()
    assert load is not None
    assert (load.waiting, load.running) == (0, 0)


def test_edges_of_one_stage_count_together() -> None:
    """By stage, with what is not answered; edges on which nothing went are left out."""
    counts = Counts()
    assert counts.out(1) is counts.out(1)
    counts.out(1).chunks += 3
    counts.out(1).answered += 1
    counts.out(2)
    counts.into(CALLER).dropped += 1
    counts.into(0).hops.add(0.5)
    counts.into(3)
    load = counts.news()
    assert load is not None
    assert [(out.target, out.chunks, out.unanswered) for out in load.outs] == [(1, 3, 2)]
    assert [(each.source, each.dropped, each.hops.count) for each in load.ins] == [
        (CALLER, 1, 0),
        (0, 0, 1),
    ]


def test_rates_are_of_the_last_stretch() -> None:
    """Silence is a rate of 0; the time to the first output stays until there is a newer one."""
    trail, clock = Trail(), Clock()
    trail.heard(Load(outputs=5), 10.0)
    assert (trail.outputs_per_s, trail.first_output_s) == (0.0, None)
    clock.add(0.5)
    clock.add(1.0)
    trail.heard(Load(outputs=9, first_outputs=clock.times), 12.0)
    assert (trail.outputs_per_s, trail.first_output_s) == (2.0, 0.75)
    trail.heard(None, 14.0)
    assert (trail.outputs_per_s, trail.first_output_s) == (0.0, 0.75)
    clock.add(0.25)
    trail.heard(Load(outputs=10, first_outputs=clock.times), 14.5)
    assert (trail.outputs_per_s, trail.first_output_s) == (2.0, 0.25)


def test_marks_of_another_host_are_moved_to_our_clock() -> None:
    """All by as much; a sending that is unknown stays unknown."""
    log = MarkLog(KEY)
    far = Hop(source=0, seq=0, num_bytes=1, sent=0.0, taken=7.0)
    marks = replace(
        log.closed(),
        submitted=5.0,
        started=6.0,
        closed=9.0,
        hops=[far, replace(far, sent=6.5)],
    )
    moved = told_here(marks, 105.0)
    assert (moved.submitted, moved.started, moved.over, moved.closed) == (105.0, 106.0, None, 109.0)
    assert [(hop.sent, hop.taken) for hop in moved.hops] == [(0.0, 107.0), (106.5, 107.0)]


def test_hops_beyond_the_most_are_counted() -> None:
    """A request of very many chunks tells of the first ones, and of how many it does not."""
    log = MarkLog(KEY)
    for seq in range(10_003):
        log.taken(Hop(source=0, seq=seq, num_bytes=1, sent=1.0, taken=2.0))
    log.over()
    marks = log.closed()
    assert len(marks.hops) == 10_000
    assert marks.num_left_out == 3
    assert marks.started == marks.submitted
    assert marks.over is not None
