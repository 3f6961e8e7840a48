"""Every block of the cache is free or has one owner, and owners get neighbours where they can."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stagemesh.engines.ar.blocks import BlockPool

MOVES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), max_size=40)


@given(st.integers(1, 40), MOVES)
def test_blocks_are_never_shared_or_lost(num_blocks: int, moves: list[tuple[int, int]]) -> None:
    """After any growing and releasing, owned and free blocks are a partition of all."""
    pool = BlockPool(num_blocks)
    owners: dict[int, list[int]] = {name: [] for name in range(5)}
    for name, count in moves:
        if count > pool.num_free:
            pool.release(owners[name])
        else:
            before = list(owners[name])
            pool.grow(owners[name], count)
            assert owners[name][: len(before)] == before
            assert len(owners[name]) == len(before) + count
        owned = [block for blocks in owners.values() for block in blocks]
        assert len(set(owned)) == len(owned)
        assert set(owned) <= set(range(num_blocks))
        assert pool.num_free == num_blocks - len(owned)
    for blocks in owners.values():
        pool.release(blocks)
    assert pool.num_free == pool.num_blocks == num_blocks


def test_sequences_that_grow_by_turns_stay_in_one_piece() -> None:
    """Eight sequences that each take one block after another own runs of neighbours."""
    pool = BlockPool(128)
    owners: list[list[int]] = [[] for _ in range(8)]
    for _ in range(8):
        for blocks in owners:
            pool.grow(blocks, 1)
    for blocks in owners:
        assert blocks == list(range(blocks[0], blocks[0] + 8))


def test_a_pool_in_pieces_still_gives_all_it_has() -> None:
    """A request larger than the largest free run takes several runs."""
    pool = BlockPool(9)
    owners: list[list[int]] = [[] for _ in range(9)]
    for blocks in owners:
        pool.grow(blocks, 1)
    for blocks in owners:
        if blocks[0] % 2:
            pool.release(blocks)
    taken: list[int] = []
    pool.grow(taken, 4)
    assert sorted(taken) == [1, 3, 5, 7]
