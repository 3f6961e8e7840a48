"""Handing over from stage to stage: chunks (T46), caches, and streams at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.plan.rules.toys import AR, TWO, Toy, chain, listed

ABLE: Final = chain(AR, AR, produces_chunks=True)
TRANSFER: Final = {"kv_transfer_config": {"kv_role": "kv_producer"}}


def test_t46_a_pipeline_without_chunks_cannot_be_asked_for_them(toy: Toy) -> None:
    """Saying nothing means whole payloads there."""
    toy = replace(toy, model=TWO)
    assert toy.found({"async_chunk": True}) == ["PL033: no stage of `toy` can hand over chunks"]
    assert [edge.chunked for edge in toy.plan({}).edges] == [False]


@pytest.mark.parametrize(("off", "on"), [(0, 1), (1, 0)])
def test_t46_both_ends_of_an_edge_say_the_same(toy: Toy, off: int, on: int) -> None:
    """The edge is named; a stage that opts out takes the other end along."""
    toy = replace(toy, model=ABLE)
    out = {"async_chunk": False}
    entries = [out if number == off else {} for number in range(2)]
    found = toy.found(listed(*entries))
    assert found == [
        f"CF036: edge `0 -> 1` is without chunks at `s{off}`, and with them at `s{on}`"
    ]
    plan = toy.plan(listed(out, out))
    assert [edge.chunked for edge in plan.edges] == [False]
    assert [edge.chunked for edge in toy.plan({}).edges] == [True]
    toy.keeps(plan)


def test_a_cache_that_is_handed_over_needs_whole_payloads(toy: Toy) -> None:
    """The place that switches chunks on is noted, when there is one."""
    toy = replace(toy, model=ABLE)
    found = toy.one(listed(TRANSFER))
    assert found.message == "`kv_transfer_config` of `s0` needs `async_chunk: false`"
    assert found.notes == ()
    found = toy.one({"async_chunk": True, **listed(TRANSFER)})
    assert [note.message for note in found.notes] == ["chunks are on here"]
    assert toy.found({"async_chunk": False, **listed(TRANSFER)}) == []


@pytest.mark.parametrize("window", [0, 3])
def test_the_window_of_streams_is_in_the_plan(toy: Toy, window: int) -> None:
    """Nothing keeps it yet, and the plan says so."""
    plan = toy.plan({"active_stream_window": window})
    assert plan.active_stream_window == window
    told = "nothing bounds the streams that a stage serves yet" in plan.not_runnable
    assert told is (window > 0)
    toy.keeps(plan)
