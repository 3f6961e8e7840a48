"""A user who does not read stops the stages of that request, one after the other, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from stagemesh.runtime.core.credits import Limits
from stagemesh.runtime.core.windows import StageWindow
from tests.runtime.line import Line

NUM, BYTES = 60, 1000
UNREAD = 8 * (BYTES + 300)
"""Room for eight outputs: four on their way, and four that are credited and not read."""

WINDOWS = {
    "none": Limits(),
    "one request": Limits(window=StageWindow(requests=1)),
    "two requests": Limits(window=StageWindow(requests=2)),
    "one chunk": Limits(window=StageWindow(chunks=1)),
    "two chunks": Limits(window=StageWindow(chunks=2)),
    "both": Limits(window=StageWindow(requests=2, chunks=3)),
}


def with_line(
    work: Callable[[Line], None], limits: Limits | None = None, delay_steps: int = 0
) -> None:
    """Run `work` and close what is left."""

    async def run() -> None:
        line = Line(NUM, BYTES, UNREAD, limits or Limits(), delay_steps)
        try:
            work(line)
        finally:
            line.close()

    asyncio.run(run())


def read_all(line: Line) -> None:
    """Let everybody read until everything has come."""
    reading = True
    while reading:
        line.rest()
        reading = any(line.read(key) for key in line.running)


def check_idle(line: Line) -> None:
    """Nobody holds anything, and all credit has come back."""
    assert line.middle.idle
    assert line.last.idle
    assert (line.into.num_kept, line.caller.num_kept) == (0, 0)
    assert not any(line.owing.values())


def test_a_user_who_does_not_read_stops_every_stage() -> None:
    """The last one first; all together have put out what the windows hold, and no more."""

    def work(line: Line) -> None:
        key = line.submit("slow")
        line.rest()
        running = line.running[key]
        assert UNREAD // 2 < running.unread_bytes <= UNREAD
        assert line.caller.num_kept > 0
        assert line.into.num_kept <= Limits().chunks
        assert not line.first.engine.has_work()
        assert not line.second.engine.has_work()
        assert (line.middle.num_waiting, line.last.num_waiting) == (1, 1)
        assert line.read(key)
        line.rest()
        assert not line.first.engine.has_work()
        read_all(line)
        assert [output.payload.meta["text"] for output in line.got[key]] == [
            f"hi#{number}" for number in range(NUM)
        ]
        check_idle(line)

    with_line(work)


def test_others_run_on_beside_many_who_do_not_read() -> None:
    """However many wait: what they hold is not the memory of an edge."""

    def work(line: Line) -> None:
        slow = [line.submit(f"slow{number}") for number in range(20)]
        line.rest()
        quick = line.submit("quick")
        while quick not in line.ended:
            line.rest()
            line.read(quick)
        assert line.ended[quick]
        assert not any(key in line.ended for key in slow)
        read_all(line)
        assert all(len(got) == NUM for got in line.got.values())
        check_idle(line)

    with_line(work)


def test_a_slow_stage_bounds_the_one_before_it() -> None:
    """It is not paused, and its user reads; it is ahead by what two windows hold, and no more."""

    def work(line: Line) -> None:
        key = line.submit("slow")
        most = 2 * Limits().chunks
        while key not in line.ended:
            for _ in range(most + 4):
                line.first.turn()
                for wire in line.wires:
                    while wire.move():
                        pass
            line.second.turn()
            line.read(key)
            assert line.came[key] - len(line.got[key]) <= most + 1, "one is on its way to the user"
            assert line.middle.num_waiting <= 1
            assert line.into.num_kept <= Limits().chunks
        read_all(line)
        assert len(line.got[key]) == NUM
        check_idle(line)

    with_line(work, delay_steps=5)


def test_a_slow_stage_keeps_no_memory_of_the_edge() -> None:
    """Those whose turn has not come hold credit of their own, and hold nobody up."""

    def work(line: Line) -> None:
        slow = [line.submit(f"slow{number}") for number in range(20)]
        for _ in range(20):
            line.first.turn()
            for wire in line.wires:
                while wire.move():
                    pass
            line.second.turn()
        assert not line.first.engine.has_work()
        assert line.into.num_kept == len(slow) * Limits().chunks
        for key in slow[1:]:
            line.leave(key)
        line.rest()
        assert line.into.num_kept <= Limits().chunks
        while slow[0] not in line.ended:
            line.rest()
            line.read(slow[0])
        read_all(line)
        assert len(line.got[slow[0]]) == NUM
        check_idle(line)

    with_line(work, delay_steps=60)


def test_who_leaves_in_the_pause_leaves_nothing() -> None:
    """The credit of all that was unread comes back."""

    def work(line: Line) -> None:
        key = line.submit("slow")
        line.rest()
        line.running[key].close()
        line.rest()
        assert not line.read(key)
        assert line.running[key].unread_bytes == 0
        check_idle(line)

    with_line(work)


def test_a_consumer_that_dies_in_the_pause_holds_nobody_up() -> None:
    """What waited for it counts as sent."""

    def work(line: Line) -> None:
        key = line.submit("slow")
        line.rest()
        line.middle.close()
        line.first.turn()
        assert line.first.engine.has_work()
        line.leave(key)
        line.rest()
        assert not any(line.owing.values())

    with_line(work)


def test_a_window_of_requests_lets_them_in_by_age() -> None:
    """The younger ones are on hold in the stage before it until an older one is through."""

    def work(line: Line) -> None:
        keys = [line.submit(name) for name in "abc"]
        line.rest()
        came = {key: running.unread_bytes > 0 for key, running in line.running.items()}
        assert list(came.values()) == [True, False, False]
        assert line.middle.num_waiting == len(keys)
        while keys[0] not in line.ended:
            line.read(keys[0])
            line.rest()
        assert [running.unread_bytes > 0 for running in line.running.values()][1:] == [True, False]
        read_all(line)
        assert all(len(got) == NUM for got in line.got.values())
        check_idle(line)

    with_line(work, WINDOWS["one request"])


def test_a_window_of_chunks_is_for_all_requests_together() -> None:
    """Two places: nobody waits for ever, and no more are on their way."""

    def work(line: Line) -> None:
        keys = [line.submit(name) for name in "abc"]
        for _ in range(10):
            line.first.turn()
        assert len(line.wires[0].sent) == 2
        read_all(line)
        assert all(len(line.got[key]) == NUM for key in keys)
        check_idle(line)

    with_line(work, WINDOWS["two chunks"])


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(min_value=0, max_value=63), max_size=400), st.sampled_from(sorted(WINDOWS))
)
def test_in_whatever_order_things_happen(choices: list[int], window: str) -> None:
    """The bound holds throughout; whoever reads on gets everything, in order; nothing is left."""

    def work(line: Line) -> None:
        keys = [line.submit(name) for name in "abc"]
        for choice in choices:
            what, which = divmod(choice, 8)
            key = keys[what % 3]
            if which == 6:
                line.read(key)
            elif which == 7 and what == 0:
                line.leave(key)
            else:
                line.step(which)
            assert all(line.running[key].unread_bytes <= UNREAD for key in keys)
            assert line.last.used <= len(keys) * (UNREAD // 2)
            assert line.into.num_kept <= len(keys) * Limits().chunks
        read_all(line)
        for key in keys:
            texts = [output.payload.meta["text"] for output in line.got[key]]
            assert texts == [f"hi#{number}" for number in range(len(texts))]
            assert len(texts) == NUM or not line.ended[key]
        check_idle(line)

    with_line(work, WINDOWS[window])
