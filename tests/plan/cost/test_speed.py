"""The comparison of speeds: in the order that published runs have, and no more than that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from stagemesh.engines.ar import ENGINE as AR
from stagemesh.engines.ar.options import ArOptions
from stagemesh.engines.diffusion import ENGINE
from stagemesh.plan.cost.estimate import StageCost, stage_cost
from stagemesh.plan.cost.speed import SPEEDS, StageTime, speed_of, stage_time
from stagemesh.plan.devices import IMAGINARY
from stagemesh.plan.engine import EngineChoice
from stagemesh.plan.stack import stack_of
from stagemesh.plan.values import DevicesPlan
from stagemesh.spec.engine import EngineSpec
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import ExecutionType, NoOptions
from tests.plan.cost.known import FLUX, QWEN_IMAGE, WAN
from tests.plan.making import Said, axis, catalog, request, solo

THINKER: Final = StageFacts(
    num_attention_heads=28,
    num_kv_heads=4,
    num_layers=28,
    num_experts=0,
    hidden_size=3584,
    intermediate_size=18944,
    head_dim=128,
    vocab_size=152064,
    max_model_len=32768,
    weight_dtype="bfloat16",
    weight_bytes=15_231_233_024,
)


def costs(
    facts: StageFacts,
    axes: Mapping[str, int],
    kind: ExecutionType = ExecutionType.DIFFUSION,
    engine: EngineSpec = ENGINE,
    args: object = None,
) -> StageCost:
    """Count one stage under axes."""
    model = solo(kind)
    said = Said(axes=[axis(name, size) for name, size in axes.items()])
    settings = request(model, {"thinker": said}).settings.stages[0]
    stack = stack_of(model.stages[0], settings, facts, catalog().axes)
    devices = DevicesPlan(kind="H100", count=8, memory_bytes=80 * 10**9, imaginary=True)
    return stage_cost(stack, EngineChoice(spec=engine, args=args or NoOptions()), devices)


def time(facts: StageFacts, device: str, **axes: int) -> StageTime:
    """Estimate a denoising stage."""
    found = stage_time(costs(facts, axes), device)
    assert found is not None
    return found


def decoding(device: str = "H100", **axes: int) -> StageTime:
    """Estimate a decoder."""
    found = stage_time(costs(THINKER, axes, ExecutionType.LLM_AR, AR, ArOptions()), device)
    assert found is not None
    return found


def test_the_order_on_two_and_four_pcie_cards_is_the_published_one() -> None:
    """FLUX.1 on L20: a ring is as good as Ulysses on two, and worst of all on four but for TP."""
    two = {
        name: time(FLUX, "L40S", **{name: 2}).latency for name in ("sp_ring", "sp_ulysses", "tp")
    }
    assert list(two) == sorted(two, key=lambda name: two[name])
    four = [
        time(FLUX, "L40S", sp_ulysses=4),
        time(FLUX, "L40S", sp_ulysses=2, sp_ring=2),
        time(FLUX, "L40S", sp_ring=4),
        time(FLUX, "L40S", tp=4),
    ]
    assert [each.latency for each in four] == sorted(each.latency for each in four)


def test_guidance_is_the_most_efficient_axis() -> None:
    """Published: 96 % of two ranks, against 68 % to 86 % for any other."""
    serial = time(QWEN_IMAGE, "H100").latency
    by_axis = {
        name: serial / time(QWEN_IMAGE, "H100", **{name: 2}).latency
        for name in ("cfg", "sp_ulysses", "sp_ring", "tp")
    }
    assert max(by_axis, key=lambda name: by_axis[name]) == "cfg"
    assert by_axis["cfg"] == pytest.approx(2, rel=0.01)


def test_no_layout_is_faster_than_its_ranks() -> None:
    """Sending only ever adds."""
    serial = time(WAN, "A100").latency
    for axes in ({"sp_ulysses": 8}, {"sp_ring": 8}, {"tp": 8}, {"cfg": 2, "sp_ulysses": 4}):
        ranks = 8
        assert serial / ranks < time(WAN, "A100", **axes).latency < serial


def test_gathering_weights_hides_behind_computing() -> None:
    """But for what takes longer than the computing itself."""
    sharded = time(WAN, "H100", sp_ulysses=8, hsdp=8).latency
    assert sharded == time(WAN, "H100", sp_ulysses=8).latency
    short = replace(WAN, sequence_length=64)
    assert time(short, "L4", sp_ulysses=8, hsdp=8).latency > time(short, "L4", sp_ulysses=8).latency


def test_ranks_with_layers_of_their_own_help_throughput_alone() -> None:
    """One request passes through all of them."""
    alone, piped = time(FLUX, "H100"), time(FLUX, "H100", pp=2)
    assert piped.latency > alone.latency
    assert piped.busy == pytest.approx(alone.busy / 2, rel=0.01)


def test_decoding_is_bound_by_memory_and_latency_of_sums() -> None:
    """Two ranks of `tp` are faster than one, by less than two; copies do not change one answer."""
    one, two = decoding(), decoding(tp=2)
    assert one.latency / 2 < two.latency < one.latency
    assert decoding(dp=2).latency == one.latency
    assert decoding(dp=2).busy == one.busy / 2
    assert decoding(tp=2).busy > one.busy / 2


def test_decoding_in_waves_is_worth_less_than_copies() -> None:
    """Seats and cache are shared between the requests that ranks with other layers work on."""
    assert decoding(pp=2).busy > 1.5 * decoding(dp=2).busy


def test_a_faster_device_is_faster() -> None:
    """And one that nobody knows is taken for a known one."""
    assert time(FLUX, "H100").latency < time(FLUX, "A100").latency < time(FLUX, "T4").latency
    assert time(FLUX, "cuda") == time(FLUX, "A100")
    assert speed_of("nobody's") is SPEEDS["A100"]


def test_every_device_that_can_be_assumed_has_numbers() -> None:
    """A new one comes with its own, or it would silently be taken for another."""
    assert set(IMAGINARY) <= set(SPEEDS)


def test_nothing_is_estimated_without_weights() -> None:
    """Nor for an engine that says nothing about what it runs."""
    assert stage_time(costs(StageFacts(), {}), "H100") is None
    assert stage_time(costs(replace(FLUX, component_bytes={}), {}), "H100") is None
    assert stage_time(StageCost(), "H100") is None


def test_what_comes_once_in_a_request_counts_once() -> None:
    """Gathered tiles are far less than what thirty steps exchange."""
    tiled = time(FLUX, "L40S", sp_ring=2, vae_pp=2).latency - time(FLUX, "L40S", sp_ring=2).latency
    assert 0 < tiled < 0.001
