"""What the ranks of a pool do to test networks that a plan is bound to."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree

from stagemesh.errors import ActivityError
from stagemesh.models._diffusers.plans.lookup import model_plan
from stagemesh.parallel.mesh.device_mesh import DeviceMesh
from stagemesh.parallel.rehearsal import Example
from stagemesh.parallel.sdpa import ORIGINAL, take_the_place
from stagemesh.parallel.sequence import attention
from stagemesh.parallel.sequence.attention import attend
from stagemesh.parallel.walker import sites, tokens
from stagemesh.parallel.walker.groups import Groups
from stagemesh.parallel.walker.sites import Sites
from stagemesh.parallel.walker.walk import bind_network
from stagemesh.spec.model_plan import ModelPlan
from tests.models.diffusers.tiny import TINY

CELLS: Mapping[str, tuple[str, str, str]] = {
    "tp": ("all", "solo", "solo"),
    "ulysses": ("solo", "all", "solo"),
    "ring": ("solo", "solo", "all"),
    "usp": ("solo", "ulysses", "ring"),
    "tp_ulysses": ("ulysses", "ring", "solo"),
    "tp_ring": ("ulysses", "solo", "ring"),
}
"""Groups of the mesh that each axis is given: tp, ulysses and ring."""


def groups_of(meshes: dict[str, DeviceMesh], cell: str) -> Groups:
    """The groups of a cell."""
    tp, ulysses, ring = (meshes["host_memory"].over(name) for name in CELLS[cell])
    return Groups(tp=tp, ulysses=ulysses, ring=ring)


def plan_of(short: str) -> ModelPlan:
    """The plan of a class that has one."""
    plan = model_plan(TINY[short].name)
    assert plan is not None
    return plan


def made(short: str, heads: int | None) -> tuple[nn.Module, Example]:
    """A network with the numbers of seed 0, and an input; another number of heads where given."""
    torch.manual_seed(0)
    tiny = TINY[short]
    if heads is not None:
        tiny = replace(tiny, config={**tiny.config, "num_attention_heads": heads})
    example = tiny.on("cpu")
    return example.network(), example


@torch.no_grad()
def error(
    meshes: dict[str, DeviceMesh],
    short: str,
    cell: str,
    *,
    heads: int | None = None,
    wrong: str = "",
) -> list[Any]:
    """Largest difference from the whole network, relative to its largest number; calls, bytes.

    `wrong` names a mistake that is made on all ranks.
    """
    whole, example = made(short, heads)
    shared, groups = copy.deepcopy(whole), groups_of(meshes, cell)
    with mistake(wrong):
        bind_network(plan_of(short), shared, groups)
        before = [over.traffic for over in groups.several]
        wanted = tensors(whole(**copy.deepcopy(dict(example.inputs))))
        largest = 0.0
        for _ in range(2):  # the second forward is like the first
            got = tensors(shared(**copy.deepcopy(dict(example.inputs))))
            for mine, theirs in zip(got, wanted, strict=True):
                assert mine.shape == theirs.shape
                scale = max(float(theirs.abs().max()), 1e-30)
                largest = max(largest, float((mine - theirs).abs().max()) / scale)
    after = [over.traffic for over in groups.several]
    calls = sum(now.calls - was.calls for now, was in zip(after, before, strict=True))
    sent = sum(now.sent_bytes - was.sent_bytes for now, was in zip(after, before, strict=True))
    return [largest, calls // 2, sent // 2]


@contextmanager
def mistake(wrong: str) -> Iterator[None]:
    """Something that is done wrongly while the block runs."""
    mistakes: dict[str, Callable[[], Any]] = {
        "": nullcontext,
        "no mask": lambda: patch.object(Sites, "_whole_mask", lambda *_args: None),
        "a ring step is skipped": lambda: patch.object(attention, "_hand_on", _stays),
        "two ranks are swapped": lambda: patch.object(tokens, "starts", _swapped),
        "attention is called past the seam": lambda: patch.object(
            sites, "take_the_place", _nothing
        ),
        "attention is done twice": lambda: patch.object(sites, "attend", _twice),
    }
    with mistakes[wrong]():
        if wrong == "attention is called past the seam":
            functional.scaled_dot_product_attention = ORIGINAL
        yield
    take_the_place()


def _stays(kv: torch.Tensor, *_args: object) -> None:
    """Nothing is sent, and the own keys are looked at again."""
    del kv


def _swapped(lengths: Sequence[int]) -> tuple[int, ...]:
    """Two ranks: the first begins where the second should, and the other way round."""
    return sum(lengths) - lengths[0], 0


def _nothing() -> None:
    """Callers of attention are left alone."""


def _twice(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  whatever attention is given
    attend(*args, **kwargs)
    return attend(*args, **kwargs)


def refusal(meshes: dict[str, DeviceMesh], short: str, cell: str, wrong: str) -> str:
    """What the first forward says of a mistake."""
    try:
        error(meshes, short, cell, wrong=wrong)
    except ActivityError as found:
        return str(found)
    return "nothing"


@torch.no_grad()
def without_a_site(meshes: dict[str, DeviceMesh]) -> str:
    """What the first forward says where a module that calls attention is no site of the plan."""
    plan, (network, example) = plan_of("wan"), made("wan", None)
    bind_network(replace(plan, sites=plan.sites[1:]), network, groups_of(meshes, "ulysses"))
    try:
        network(**example.inputs)
    except ActivityError as found:
        return str(found)
    return "nothing"


def tensors(output: object) -> list[torch.Tensor]:
    """All tensors of numbers of an output."""
    leaves = _pytree.tree_leaves(output)
    return [each for each in leaves if isinstance(each, torch.Tensor) and each.is_floating_point()]


def attention_of_others(_meshes: dict[str, DeviceMesh]) -> bool:
    """Whether attention outside of a bound network is that of torch, bit by bit."""
    query = torch.randn(1, 2, 3, 4)
    mine = functional.scaled_dot_product_attention(query, query, query)
    return torch.equal(mine, ORIGINAL(query, query, query))
