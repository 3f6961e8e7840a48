"""Networks as their libraries publish them, on several ranks: the whole one, and proof of it."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from torch import nn

from stagemesh.errors import DiagnosticError, ParallelError
from stagemesh.parallel.mesh.communicator import Communicator
from stagemesh.parallel.mesh.ranks import GlobalRank, Group, GroupRank
from stagemesh.parallel.walker.bound import Bound
from stagemesh.parallel.walker.groups import Groups
from stagemesh.parallel.walker.walk import HOOKS, bind_network
from stagemesh.spec.hooks import HookCategory, KernelSpec, LayerHookSpec
from tests.models.diffusers.tiny import TINY
from tests.parallel.matrix import FILE, MESHES, measured
from tests.parallel.pool import pool_of
from tests.parallel.toy import PLAN, toy
from tests.parallel.walk_cases import plan_of

pytestmark = pytest.mark.slow

BOUND: Final = 1e-5
"""Relative to the largest number of the result; measured are 5e-7 at most."""
QUICK: Final = {
    ("flux", "usp", 4),
    ("flux2", "tp_ring", 4),
    ("qwen_image", "ring", 2),
    ("wan_each_token", "tp_ulysses", 4),
    ("sd3_dual", "ulysses", 2),
    ("pixart", "ring", 2),
    ("ltx", "tp_ulysses", 4),
    ("cogvideox", "usp", 4),
    ("z_image_omni", "ulysses", 2),
    ("hunyuan_video", "tp_ring", 4),
    ("umt5", "tp", 2),
    ("qwen2_5_vl", "tp", 4),
}


def cells() -> list[Any]:
    """Every network under every mesh that it can have; a few of them at every commit."""
    return [
        pytest.param(
            short, cell, size, marks=[] if (short, cell, size) in QUICK else pytest.mark.nightly
        )
        for short in TINY
        for cell, size, _ in MESHES
        if cell == "tp" or plan_of(short).splits
    ]


@pytest.mark.parametrize(("short", "cell", "size"), cells())
def test_several_ranks_compute_what_one_does(short: str, cell: str, size: int) -> None:
    """With the collectives and bytes of the reference."""
    found = measured(short, cell, size)
    assert found is not None
    assert found.error <= BOUND
    [row] = [line for line in FILE.read_text("utf-8").splitlines() if f"({short}) |" in line]
    column = [(name, ranks) for name, ranks, _ in MESHES].index((cell, size))
    assert row.split(" | ")[1 + column].strip("| ").endswith(f": {found.cost}")


@pytest.mark.parametrize("cell", ["ulysses", "ring"])
def test_heads_need_not_divide(cell: str) -> None:
    """Three heads on two ranks."""
    told = pool_of(2).run("walk_cases.error", short="flux", cell=cell, heads=3)
    assert max(error for error, _, _ in told) <= BOUND


@pytest.mark.parametrize(
    ("short", "wrong"), [("hunyuan_video", "no mask"), ("flux2", "two ranks are swapped")]
)
def test_a_mistake_shows_in_the_result(short: str, wrong: str) -> None:
    """What the bytes cannot tell."""
    told = pool_of(2).run("walk_cases.error", short=short, cell="ulysses", wrong=wrong)
    assert max(error for error, _, _ in told) > 100 * BOUND


@pytest.mark.parametrize(
    ("cell", "wrong", "said"),
    [
        ("ring", "a ring step is skipped", "`all`: got `1` calls and"),
        ("ulysses", "attention is done twice", "`all`: got `"),
        (
            "ulysses",
            "attention is called past the seam",
            "`transformer_blocks.0.attn` ran and called no attention",
        ),
    ],
)
def test_the_first_forward_proves_that_everything_runs(cell: str, wrong: str, said: str) -> None:
    """All ranks fail, naming the module or the axis."""
    told = pool_of(2).run("walk_cases.refusal", short="flux2", cell=cell, wrong=wrong)
    for each in told:
        assert each.startswith("`Flux2Transformer2DModel` does not do what its plan says: ")
        assert said in each


def test_attention_outside_of_the_sites_is_refused() -> None:
    """It would see a part of the tokens only."""
    told = pool_of(2).run("walk_cases.without_a_site")
    name = "`WanTransformer3DModel`"
    assert told == [f"attention in {name} that is no site of its plan, after tokens were cut"] * 2


# --- what is bound ------------------------------------------------------------------------------


def alone(axis: str) -> Communicator:
    """A group of one rank."""
    return Communicator(Group(axis=axis, ranks=(GlobalRank(0),), own=GroupRank(0)), None)


ONE: Final = Groups(tp=alone("tp"), ulysses=alone("sp_ulysses"), ring=alone("sp_ring"))


def made() -> nn.Module:
    """A network on the meta device."""
    return toy()


def hooks(network: nn.Module) -> int:
    """How many hooks are bound."""
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in network.modules()
    )


def test_where_all_axes_are_off_nothing_is_bound() -> None:
    """No hook, no other method, no other weight."""
    network = made()
    before = dict(network.named_parameters())
    assert bind_network(PLAN, network, ONE) == ()
    assert hooks(network) == 0
    assert all("forward" not in vars(module) for module in network.modules())
    assert all(each is before[name] for name, each in network.named_parameters())


def test_others_add_what_they_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    """By category, then by priority, onto every module of the target."""
    bound: list[str] = []

    def note(_bound: Bound, path: str, _module: nn.Module, _pattern: str) -> None:
        bound.append(path)

    monkeypatch.setitem(HOOKS, "note", note)
    specs = [
        LayerHookSpec(hook_id="note", target="out"),
        LayerHookSpec(hook_id="note", target="blocks.*.up", category=HookCategory.FFN_PRE),
        LayerHookSpec(hook_id="note", target="entry", priority=-1),
        LayerHookSpec(hook_id="note", target="blocks.*.attn.q", category=HookCategory.LINEAR),
    ]
    found = bind_network(PLAN, made(), ONE, specs)
    assert found == (specs[3], specs[1], specs[2], specs[0])
    assert bound == [
        "blocks.0.attn.q",
        "blocks.1.attn.q",
        "blocks.0.up",
        "blocks.1.up",
        "entry",
        "out",
    ]


@pytest.mark.parametrize(
    ("specs", "told"),
    [
        (
            [LayerHookSpec(hook_id="mine", target="out")],
            "nothing is called `mine`; there are `gather_tokens`, `split_tokens`",
        ),
        (
            [LayerHookSpec(hook_id="split_tokens", target="blocks.*.nowhere")],
            "`split_tokens` is to be bound onto `blocks.*.nowhere`, and `Toy` has no such module",
        ),
        (
            [
                KernelSpec(kernel_id=name, target="out", category=HookCategory.LINEAR)
                for name in ("row_linear", "norm_across_ranks")
            ],
            "`row_linear` and `norm_across_ranks` are both bound onto `out` as `linear`",
        ),
    ],
)
def test_bindings_that_cannot_be_are_refused_before_anything_is_bound(
    specs: list[LayerHookSpec | KernelSpec], told: str
) -> None:
    """A name that nobody knows, and two for one place."""
    network = made()
    with pytest.raises(ParallelError, match=re.escape(told)):
        bind_network(PLAN, network, ONE, specs)
    assert hooks(network) == 0


def test_a_plan_that_does_not_hold_is_told_with_diagnostics() -> None:
    """Of another network."""
    spec = LayerHookSpec(hook_id="split_tokens", target="")
    with pytest.raises(DiagnosticError, match="MD05"):
        bind_network(PLAN, nn.Linear(2, 2), ONE, [spec])


def test_bound_networks_leave_others_alone() -> None:
    """Attention that anybody else calls is that of torch."""
    pool_of(2).run("walk_cases.error", short="flux", cell="ulysses")
    assert pool_of(2).run("walk_cases.attention_of_others") == [True, True]
