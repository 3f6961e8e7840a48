"""The scheduler keeps its limits, serves in order, and never gets stuck."""

from __future__ import annotations

import random
from collections.abc import Sequence as List

from hypothesis import given
from hypothesis import strategies as st

from stagemesh.engines.ar.blocks import BlockPool
from stagemesh.engines.ar.scheduler import Chunk, Scheduler, Sequence

BLOCK = 4


def scheduler(pool: BlockPool, *, seqs: int = 8, tokens: int = 64) -> Scheduler:
    """Return a scheduler over `pool`."""
    return Scheduler(pool, block_size=BLOCK, max_num_seqs=seqs, max_num_batched_tokens=tokens)


def sequence(name: str, tokens: int, *, complete: bool = True) -> Sequence:
    """Return a sequence whose prompt is there."""
    return Sequence(request_id=name, num_tokens=tokens, complete=complete)


def play(under_test: Scheduler, chunks: List[Chunk]) -> None:
    """Do what an engine does with chunks: compute them and append the tokens they yield."""
    yielding = [chunk.sequence for chunk in chunks if chunk.yields_token]
    for chunk in chunks:
        under_test.computed(chunk)
    for one in yielding:
        one.num_tokens += 1


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 10)), min_size=1, max_size=8),
    st.integers(1, 4),
    st.integers(1, 24),
    st.integers(10, 24),
    st.integers(0, 2**32),
)
def test_every_request_is_answered_within_all_limits(
    lengths: list[tuple[int, int]], seqs: int, tokens: int, blocks: int, seed: int
) -> None:
    """Whatever arrives, pauses and is resumed, limits hold and every answer gets its length."""
    draw = random.Random(seed)  # noqa: S311  # hypothesis draws too slowly here
    pool = BlockPool(blocks)
    under_test = scheduler(pool, seqs=seqs, tokens=tokens)
    live: dict[str, tuple[Sequence, int]] = {}
    waiting = [
        (sequence(str(index), prompt), prompt + answer)
        for index, (prompt, answer) in enumerate(lengths)
    ]
    for _ in range(50_000):  # one token a step, and prompts that are computed anew
        if not waiting and not live:
            break
        if waiting and (not live or draw.random() < 0.5):
            one, end = waiting.pop(0)
            live[one.request_id] = (one, end)
            under_test.add(one)
        for one, _ in live.values():
            one.paused = draw.random() < 0.1
        assert under_test.has_work() == any(one.can_go_on for one, _ in live.values())
        chunks = under_test.schedule()
        assert bool(chunks) == under_test.has_work()
        assert len(chunks) <= seqs
        assert sum(chunk.count for chunk in chunks) <= tokens
        for chunk in chunks:
            assert chunk.count > 0
            assert not chunk.sequence.paused
            assert chunk.start == chunk.sequence.num_computed
            assert len(chunk.sequence.blocks) * BLOCK >= chunk.start + chunk.count
        owned = [block for one, _ in live.values() for block in one.blocks]
        assert len(owned) == len(set(owned)) == pool.num_blocks - pool.num_free
        play(under_test, chunks)
        for name, (one, end) in list(live.items()):
            if one.num_tokens >= end:
                under_test.remove(name)
                del live[name]
    assert not live
    assert pool.num_free == blocks


def test_decoding_goes_on_beside_a_long_prompt() -> None:
    """A long prompt is cut into chunks that leave every running request its token."""
    under_test = scheduler(BlockPool(64), tokens=10)
    long, short = sequence("long", 100), sequence("short", 3)
    under_test.add(long)
    under_test.add(short)
    counts = {chunk.sequence.request_id: chunk.count for chunk in under_test.schedule()}
    assert counts == {"long": 9, "short": 1}


def test_the_oldest_come_first() -> None:
    """With room for two in a step, the two that came first are served until they end."""
    under_test = scheduler(BlockPool(64), seqs=2)
    for name in "abc":
        under_test.add(sequence(name, 3))
    for _ in range(3):
        chunks = under_test.schedule()
        assert [chunk.sequence.request_id for chunk in chunks] == ["a", "b"]
        play(under_test, chunks)
    under_test.remove("a")
    assert [chunk.sequence.request_id for chunk in under_test.schedule()] == ["b", "c"]


def test_the_latest_loses_its_blocks_to_the_oldest() -> None:
    """When blocks run out, the request that came last is thrown out and computed again later."""
    under_test = scheduler(BlockPool(4))
    old, young = sequence("old", 8), sequence("young", 4)
    under_test.add(old)
    under_test.add(young)
    play(under_test, under_test.schedule())
    assert (len(old.blocks), len(young.blocks)) == (2, 1)
    while len(old.blocks) < 4:
        play(under_test, under_test.schedule())
    assert young.blocks == []
    assert young.num_computed == 0
    assert under_test.num_preemptions == 1
    under_test.remove("old")
    assert under_test.schedule()[0].count == young.num_tokens


def test_paused_requests_lose_their_blocks_first() -> None:
    """An old request that is paused gives its blocks to a younger one that can go on."""
    under_test = scheduler(BlockPool(4))
    old, young = sequence("old", 12), sequence("young", 8)
    under_test.add(old)
    play(under_test, under_test.schedule())
    old.paused = True
    under_test.add(young)
    assert [chunk.sequence.request_id for chunk in under_test.schedule()] == ["young"]
    assert old.blocks == []


def test_the_last_token_of_an_open_prompt_is_kept_back() -> None:
    """While more input may come, all but the last token are computed, and none is yielded."""
    under_test = scheduler(BlockPool(16))
    one = sequence("a", 5, complete=False)
    under_test.add(one)
    (chunk,) = under_test.schedule()
    assert (chunk.count, chunk.yields_token) == (4, False)
    under_test.computed(chunk)
    assert not under_test.has_work()
    one.complete = True
    (chunk,) = under_test.schedule()
    assert (chunk.start, chunk.count, chunk.yields_token) == (4, 1, True)
