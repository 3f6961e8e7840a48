"""Handing over from stage to stage: chunks (T46), caches, and streams at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from stagemesh.spec.diagnostic import Severity
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
    """And the plan can be run as far as that goes."""
    toy = replace(toy, model=ABLE)
    plan = toy.plan({"active_stream_window": window})
    assert plan.active_stream_window == window
    assert not any("stream" in reason for reason in plan.not_runnable)
    toy.keeps(plan)


IDLE: Final[dict[str, tuple[dict[str, object], str]]] = {
    "streams": (
        {"active_stream_window": 2},
        "`active_stream_window` bounds nothing: no stage hands over chunks",
    ),
    "together": (
        {"edges": [{"from": 0, "to": 1, "window_size": 2}]},
        "`window_size` does nothing on `0 -> 1`, which has no chunks",
    ),
}


@pytest.mark.parametrize("what", IDLE)
def test_what_is_said_about_chunks_where_there_are_none_is_told(toy: Toy, what: str) -> None:
    """With the place that switched them off, unless a higher layer did."""
    deploy, message = IDLE[what]
    toy, able = replace(toy, model=TWO), replace(toy, model=ABLE)
    assert able.found(deploy) == []
    assert replace(able, launch={"async_chunk": False}).found(deploy) == []
    out = listed({"async_chunk": False}, {"async_chunk": False})
    assert able.found({**deploy, "async_chunk": True, **out}) == [f"PL124?: {message}"]
    for found in (toy.one(deploy), able.one({**deploy, "async_chunk": False})):
        assert (found.code, found.severity, found.message) == ("PL124", Severity.WARNING, message)
    assert [note.message for note in found.notes] == ["chunks are off here"]
    assert toy.one(deploy).notes == ()
    able.keeps(able.plan({**deploy, "async_chunk": False}))


def test_all_outputs_together_is_what_is_done_without_chunks(toy: Toy) -> None:
    """So it is not told there."""
    toy = replace(toy, model=TWO)
    edges = [{"from": 0, "to": 1, "window_size": -1}]
    assert toy.found({"edges": edges}) == []
    assert toy.found({"active_stream_window": 0}) == []


def test_chunks_in_flight_are_bounded_where_there_are_some(toy: Toy) -> None:
    """A stage that hands over whole outputs has none."""
    bound = {"s0": {"stage_pp": {"size": 2, "unit": "chunks"}}}
    toy = replace(toy, model=ABLE)
    assert toy.found({}, overrides=bound) == []
    whole = replace(toy, model=TWO)
    told = "PL124?: `unit: chunks` of `s0` bounds nothing: it hands over no chunks"
    assert whole.found({}, overrides=bound) == [told]
    assert whole.found({}, overrides={"s0": {"stage_pp": {"size": 2, "unit": "requests"}}}) == []
