"""What ranks send: the published table to its printed digits, and what the formulas promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stagemesh.plan.values import TrafficPlan
from stagemesh.spec.facts import StageFacts
from tests.plan.cost.known import FLUX, HUNYUAN_VIDEO, QWEN_IMAGE, WAN, attempted, laid_out, sent

WORKED: Final = [
    (FLUX, 2, "1.61", "1.61", None, "2.15"),
    (FLUX, 4, "1.21", "2.42", "1.61", "3.23"),
    (FLUX, 8, "0.71", "2.82", "1.61", "3.77"),
    (QWEN_IMAGE, 4, "4.60", "9.20", "6.13", "18.4"),
    (QWEN_IMAGE, 8, "2.68", "10.7", "6.13", "21.5"),
    (WAN, 4, "23.2", "46.4", "31.0", "139"),
    (WAN, 8, "13.5", "54.2", "31.0", "163"),
    (HUNYUAN_VIDEO, 4, "32.9", "65.8", "43.9", "87.8"),
    (HUNYUAN_VIDEO, 8, "19.2", "76.8", "43.9", "102"),
]
"""GB that a rank sends in one forward: Ulysses, ring, two by ring, tensor parallel."""

TINY: Final = StageFacts(
    num_attention_heads=8,
    num_kv_heads=8,
    head_dim=16,
    hidden_size=128,
    intermediate_size=512,
    num_layers=3,
    sequence_length=960,
    text_length=0,
    output_size=64,
    guidance=True,
    num_experts=8,
    moe_intermediate_size=32,
    num_parameters=3_000_000,
    output_pixels=512 * 512,
)
NUMBER: Final = 2
"""Bytes of a number in the type that is assumed."""


def gigabytes(amount: int) -> str:
    """Say it as the table does: three digits, two places below ten."""
    billions = amount / 1e9
    return f"{billions:.2f}" if billions < 10 else f"{billions:#.3g}".rstrip(".")


@pytest.mark.parametrize(("facts", "size", "ulysses", "ring", "both", "tensor"), WORKED)
def test_the_published_table_comes_out(
    facts: StageFacts, size: int, ulysses: str, ring: str, both: str | None, tensor: str
) -> None:
    """Four models, to the digits that are printed."""
    assert gigabytes(sent(facts, sp_ulysses=size)["sp_ulysses"]) == ulysses
    assert gigabytes(sent(facts, sp_ring=size)["sp_ring"]) == ring
    assert gigabytes(sent(facts, tp=size)["tp"]) == tensor
    if both is not None:
        combined = sent(facts, sp_ulysses=2, sp_ring=size // 2)
        assert gigabytes(sum(combined.values())) == both


@given(st.sampled_from([2, 4, 8]), st.sampled_from([1, 2, 4, 8]))
def test_ring_bytes_do_not_depend_on_how_heads_are_grouped(size: int, kv_heads: int) -> None:
    """Only keys and values travel: as many bytes as they have heads, whatever the queries are."""
    facts = replace(TINY, num_kv_heads=kv_heads)
    expected = 2 * (960 // size) * (size - 1) * kv_heads * 16 * NUMBER * 3
    assert sent(facts, sp_ring=size)["sp_ring"] == expected
    fewer = replace(facts, num_attention_heads=kv_heads)
    assert sent(fewer, sp_ring=size)["sp_ring"] == expected


@given(st.sampled_from([2, 4, 8]), st.sampled_from([8, 4, 2]))
def test_ulysses_falls_with_the_ranks(size: int, kv_heads: int) -> None:
    """(2 q + 2 kv heads) x tokens / P x (P - 1) / P, where everything divides."""
    if kv_heads % size:
        return
    facts = replace(TINY, num_kv_heads=kv_heads)
    expected = (2 * 8 + 2 * kv_heads) * (960 // size) * (size - 1) // size * 16 * NUMBER * 3
    assert sent(facts, sp_ulysses=size)["sp_ulysses"] == expected


@given(
    st.integers(1, 8),
    st.integers(2, 8),
    st.integers(30, 400),
    st.integers(1, 12),
    st.integers(1, 12),
)
def test_uneven_shards_send_at_most_a_token_and_a_head_more(
    ring: int, size: int, tokens: int, kv_heads: int, group: int
) -> None:
    """The busiest rank of any split is close to the even formula, and never below it."""
    heads = kv_heads * group
    assume(heads >= size)
    facts = replace(TINY, num_attention_heads=heads, num_kv_heads=kv_heads, sequence_length=tokens)
    got = sent(facts, sp_ulysses=size, sp_ring=ring)["sp_ulysses"] / (16 * NUMBER * 3)
    shard, count = tokens / (size * ring), max(kv_heads, size)
    even = (2 * heads + 2 * count) * shard * (size - 1) / size
    slack = (2 * heads + 2 * count) * 2 + 2 * size * (shard + 1) * (group + 1)
    assert got >= 2 * heads * shard * (size - 1) / size - 1e-6 or size * ring > tokens
    assert got <= even + slack


def test_few_key_heads_go_to_several_ranks() -> None:
    """With two key heads on four ranks each rank gets one of them, and half of its queries."""
    facts = replace(TINY, num_kv_heads=2)
    # a shard of 240 tokens: six of eight query heads and three foreign key heads leave, of its own
    # two query heads the results of 720 foreign tokens
    expected = (240 * (6 + 2 * 3) + 720 * 2) * 16 * NUMBER * 3
    assert sent(facts, sp_ulysses=4)["sp_ulysses"] == expected


def test_tensor_parallel_heads_are_not_sent_twice() -> None:
    """Each rank of `tp` exchanges its own heads, and sums its own tokens."""
    alone = sent(TINY, sp_ulysses=2)
    together = sent(TINY, sp_ulysses=2, tp=2)
    assert together["sp_ulysses"] * 2 == alone["sp_ulysses"]
    assert together["tp"] * 2 == sent(TINY, tp=2)["tp"]
    ring = sent(TINY, sp_ring=2, tp=2)
    assert ring["sp_ring"] * 2 == sent(TINY, sp_ring=2)["sp_ring"]


def test_a_prompt_that_ranks_keep_whole_is_gathered_once() -> None:
    """Its queries, keys and values are not exchanged; its result is, over the heads."""
    split = replace(TINY, text_length=160)
    whole = replace(split, keeps_text_whole=True)
    picture, text = 4 * 800 // 2 * 8 // 2, 160 * 8 // 2
    assert sent(whole, sp_ulysses=2)["sp_ulysses"] == (picture + text) * 16 * NUMBER * 3
    assert sent(split, sp_ulysses=2) == sent(TINY, sp_ulysses=2)
    axis = laid_out(whole, {"sp_ulysses": 2}).axes[0]
    assert axis.traffic is not None
    assert axis.traffic.collectives == 3 * 3
    assert sent(whole, sp_ring=2)["sp_ring"] == 2 * 400 * 8 * 16 * NUMBER * 3


def test_lengths_of_prompt_and_picture_are_split_apart() -> None:
    """Both remainders go to the first ranks: 3 + 3 tokens rather than 5."""
    facts = replace(TINY, sequence_length=10, text_length=5)
    # the rank with six of ten tokens sends half of its heads, and half of the others' results
    assert sent(facts, sp_ulysses=2)["sp_ulysses"] == (6 * 12 + 4 * 4) * 16 * NUMBER * 3


@pytest.mark.parametrize(
    ("axes", "axis", "sent_bytes", "collectives"),
    [
        ({"cfg": 2}, "cfg", 960 * 64 * 2, 1),
        ({"pp": 3}, "pp", 960 * 128 * 2, 1),
        ({"sp_ulysses": 2}, "sp_ulysses", 4 * 480 * 4 * 16 * 2 * 3, 6),
        ({"sp_ring": 4}, "sp_ring", 2 * 720 * 8 * 16 * 2 * 3, 9),
        ({"tp": 4}, "tp", 6 * 2 * 960 * 128 * 2 * 3 // 4, 6),
        ({"tp": 2, "pp": 3}, "tp", 2 * 2 * 960 * 128 * 2 // 2, 2),
        ({"tp": 2, "ep": 2}, "ep", 0, 0),
        ({"tp": 2, "sp_ring": 2, "ep": 4}, "ep", 2 * 480 * 128 * 2 * 3, 6),
        ({"sp_ring": 2, "hsdp": 2}, "hsdp", 3_000_000, 4),
        ({"hsdp": 3}, "hsdp", 4_000_000, 4),
        ({"sp_ring": 2, "hsdp": {"size": 2, "shard": 1, "replicate": 2}}, "hsdp", 0, 0),
    ],
)
def test_each_axis_sends_what_its_formula_says(
    axes: dict[str, int | dict[str, object]], axis: str, sent_bytes: int, collectives: int
) -> None:
    """One small model under every axis of a denoising stage, in every forward."""
    found = {each.axis: each.traffic for each in laid_out(TINY, axes).axes}
    assert found[axis] == TrafficPlan(
        sent_bytes=sent_bytes, collectives=collectives, per="forward", tokens=960
    )


def test_keys_that_are_gathered_take_one_collective_a_layer() -> None:
    """As many bytes as round the ring, and all of them are held at once."""
    facts = replace(TINY, output_pixels=None)
    gathered = laid_out(facts, {"sp_ring": {"size": 4, "exchange": "allgather"}})
    ring = laid_out(facts, {"sp_ring": 4})
    traffic = gathered.axes[0].traffic
    assert traffic is not None
    assert traffic.sent_bytes == sent(TINY, sp_ring=4)["sp_ring"]
    assert traffic.collectives == 3
    assert gathered.memory is not None
    assert ring.memory is not None
    held = 960 * 2 * 8 * 16 * NUMBER
    passed = 240 * (2 * 2 * 8 * 16 * NUMBER + 8 * 17 * 4)
    assert gathered.memory.workspace - ring.memory.workspace == held - passed


def test_a_rank_with_several_branches_sends_several_predictions() -> None:
    """Three branches on two ranks: one of them has two."""
    three = laid_out(TINY, {"cfg": {"size": 2, "branches": 3}}).axes[0].traffic
    assert three is not None
    assert three.sent_bytes == 2 * sent(TINY, cfg=2)["cfg"]


def test_tiles_are_gathered_once_in_a_request() -> None:
    """Three colours of every pixel, but those of the own tiles."""
    axes = laid_out(TINY, {"sp_ring": 4, "vae_pp": 4}).axes
    assert axes[1].traffic == TrafficPlan(
        sent_bytes=3 * 512 * 512 * 2 * 3 // 4, collectives=1, per="request", tokens=960
    )


def test_sums_of_a_layer_are_two_where_nothing_else_is_known() -> None:
    """Attention and feed-forward; models with more or fewer say so."""
    counted = replace(TINY, num_row_linears=9)
    assert sent(counted, tp=2)["tp"] == sent(TINY, tp=2)["tp"] * 9 // 6


def test_an_axis_of_size_one_sends_nothing() -> None:
    """Nor do axes that only spread requests."""
    assert sent(TINY, sp_ring=1, tp=1) == {}
    assert sent(TINY, dp=2, stage_replica=2) == {}


@pytest.mark.parametrize(
    ("axes", "missing", "axis"),
    [
        ({"sp_ulysses": 2}, "head_dim", "sp_ulysses"),
        ({"sp_ring": 2}, "num_kv_heads", "sp_ring"),
        ({"tp": 2}, "num_layers", "tp"),
        ({"pp": 2}, "hidden_size", "pp"),
        ({"cfg": 2}, "output_size", "cfg"),
        ({"tp": 2, "sp_ring": 2, "ep": 4}, "hidden_size", "ep"),
        ({"sp_ring": 2, "hsdp": 2}, "num_layers", "hsdp"),
        ({"sp_ring": 2, "hsdp": 2}, "num_parameters", "hsdp"),
        ({"sp_ring": 2, "vae_pp": 2}, "output_pixels", "vae_pp"),
        ({"sp_ring": 2}, "sequence_length", "sp_ring"),
    ],
)
def test_a_missing_fact_leaves_the_traffic_open(
    axes: dict[str, int], missing: str, axis: str
) -> None:
    """The plan says that it cannot be told, and of which axis."""
    gap: dict[str, Any] = {missing: None}
    plan = attempted(replace(TINY, **gap), axes).plan
    assert plan is not None
    found = {each.axis: each.traffic for each in plan.stages[0].axes}
    assert found[axis] is None
    assert (
        f"traffic of `{axis}` of `thinker`: the checkpoint does not tell enough"
        in plan.skipped_checks
    )


def test_what_bands_of_a_picture_exchange_is_not_known() -> None:
    """It depends on every convolution of the decoder."""
    mode = {"size": 2, "mode": "spatial_shard_height"}
    plan = attempted(TINY, {"sp_ring": 2, "vae_pp": mode}).plan
    assert plan is not None
    assert "traffic of `vae_pp` of `thinker`" in "".join(plan.skipped_checks)


def test_facts_that_no_network_has_are_as_good_as_none() -> None:
    """A checkpoint may hold any number: it leads to no estimate, and to no failure."""
    facts = replace(TINY, num_kv_heads=-3, head_dim=0, text_length=5000)
    stage = laid_out(facts, {"sp_ring": 2})
    assert stage.axes[0].traffic is None
