"""A network that is cut as its plan says computes what the whole one does.

Reference: the class as its library publishes it, whole, float32, random weights of seed 0. The
largest differences measured, relative to the largest number of the result: 2.5e-6 for two ranks of
width (PixArt, whose masks are -10000), 6.8e-7 for three ranks that share tokens (FLUX.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
import torch
from torch import nn
from torch.utils import _pytree

from stagemesh.parallel.rehearsal import Example
from stagemesh.spec.model_plan import ModelPlan
from tests.models.diffusers.cut_by_threads import run_cut
from tests.models.diffusers.test_plans_hold import plan_of
from tests.models.diffusers.tiny import TINY
from tests.models.diffusers.tokens_by_threads import run_tokens

Run: TypeAlias = Callable[[ModelPlan, nn.Module, Example, int], list[Any]]

pytestmark = pytest.mark.slow

BOUND = 1e-5
"""Relative to the largest number of the result."""
CUT_SAMPLE = ("flux", "wan_each_token", "z_image", "hunyuan_video")
"""Positions, time steps of tokens, masks, and one sequence of everything."""
SAMPLE = ("flux2", "hunyuan_video", "ltx", "qwen3")
"""Packed columns, packed rows, tables and norms over all heads, key heads for several."""


@pytest.mark.parametrize(
    "short",
    [pytest.param(each, marks=[] if each in SAMPLE else pytest.mark.nightly) for each in TINY],
)
def test_two_ranks_of_a_width_compute_what_one_does(short: str) -> None:
    """Both have the same result, and it is that of the whole network."""
    assert difference(short, plan_of(TINY[short].name), run_cut, 2) <= BOUND


@pytest.mark.nightly
@pytest.mark.parametrize("short", ["qwen3", "llama", "qwen2_5_vl", "mistral3"])
def test_ranks_that_share_a_key_head_compute_what_one_does(short: str) -> None:
    """Four ranks, two key heads."""
    assert difference(short, plan_of(TINY[short].name), run_cut, 4) <= BOUND


@pytest.mark.parametrize(
    "short",
    [
        pytest.param(each, marks=[] if each in CUT_SAMPLE else pytest.mark.nightly)
        for each in TINY
        if plan_of(TINY[each].name).splits
    ],
)
def test_ranks_that_share_tokens_compute_what_one_does(short: str) -> None:
    """Three ranks and uneven parts; masks, tables of positions and time steps are cut as well."""
    assert difference(short, plan_of(TINY[short].name), run_tokens, 3) <= BOUND


def test_streams_in_the_wrong_order_are_another_network() -> None:
    """A mask over clip and prompt is cut as if the prompt came first: shapes fit."""
    plan = plan_of(TINY["hunyuan_video"].name)
    splits = tuple(
        replace(each, streams=("txt", "img")) if len(each.streams) > 1 else each
        for each in plan.splits
    )
    wrong = replace(plan, splits=splits)
    assert difference("hunyuan_video", wrong, run_tokens, 3) > 100 * BOUND


def test_blocks_in_the_wrong_order_are_another_network() -> None:
    """Shapes fit, and the result does not."""
    plan = plan_of(TINY["hunyuan_video"].name)
    rules = tuple(replace(each, blocks=(1, 1, 3)) if each.blocks else each for each in plan.tp)
    assert difference("hunyuan_video", replace(plan, tp=rules), run_cut, 2) > 100 * BOUND


def difference(short: str, plan: ModelPlan, run: Run, ranks: int) -> float:
    """The largest difference of any rank, relative to the largest number of the result."""
    torch.manual_seed(0)
    example = TINY[short].on("cpu")
    network = example.network()
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(torch.randn_like(weight) * 0.2)
        wanted = _tensors(network(**example.inputs))
    outputs = run(plan, network, example, ranks)
    assert wanted
    assert all(torch.isfinite(each).all() for each in wanted)
    return max(
        float((one - whole).abs().max() / whole.abs().max())
        for output in outputs
        for one, whole in zip(_tensors(output), wanted, strict=True)
    )


def _tensors(output: object) -> list[torch.Tensor]:
    return [each for each in _pytree.tree_leaves(output) if isinstance(each, torch.Tensor)]
