"""The rule of each axis over a layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from stagemesh.spec.axis import Finding, Said, StackView
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.patterns import Policy, RouteByStage
from stagemesh.spec.pipeline import ExecutionType
from stagemesh.spec.registry import AXES

DENSE = StageFacts(
    num_attention_heads=28,
    num_kv_heads=4,
    num_layers=28,
    num_experts=0,
    hidden_size=3584,
    intermediate_size=18944,
    guidance=False,
)

STRICT = {"mode": "strict"}


def look(
    name: str,
    sizes: dict[str, int],
    facts: StageFacts = DENSE,
    *,
    world: int = 1,
    options: Mapping[str, object] | None = None,
) -> tuple[list[Finding], list[str]]:
    """Ask one axis about a layout; return what it finds and what it cannot check."""
    axis = AXES.load(name)[0]
    skipped: list[str] = []
    settled = settle(name, sizes.get(name), options=options)
    assert isinstance(settled, Said)
    view = StackView(
        stage="thinker",
        execution_type=ExecutionType.LLM_AR,
        sizes=sizes,
        routing=axis.routing,
        options=settled.options,
        facts=facts,
        world=world,
        skip=skipped.append,
    )
    return list(axis.check(view)), skipped


def settle(
    name: str,
    size: int | None,
    *,
    ranks: int = 1,
    options: Mapping[str, object] | None = None,
    policy: Policy | None = None,
) -> Said | Finding:
    """Let one axis fill in what was left out."""
    axis = AXES.load(name)[0]
    return axis.settle(
        Said(
            stage="thinker",
            size=size,
            routing=axis.routing if policy is None else RouteByStage(policy=policy),
            options=axis.options(**(options or {})),
            ranks=ranks,
        )
    )


def messages(
    name: str, sizes: dict[str, int], facts: StageFacts = DENSE, *, world: int = 1
) -> list[str]:
    """Return the messages alone; nothing may be skipped."""
    found, skipped = look(name, sizes, facts, world=world)
    assert skipped == []
    return [finding.message for finding in found]


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_tp_takes_sizes_that_divide_and_replicates_kv_heads(size: int) -> None:
    """8 ranks share 4 kv heads: each head lies on 2 of them."""
    facts = replace(DENSE, num_attention_heads=32)
    assert messages("tp", {"tp": size}, facts) == []


@pytest.mark.parametrize(
    ("size", "facts", "what"),
    [
        (3, DENSE, "`28` query heads"),
        (8, replace(DENSE, num_attention_heads=8, num_kv_heads=3), "`3` kv heads"),
        (8, replace(DENSE, num_attention_heads=8, hidden_size=12), "`12` hidden channels"),
        (4, replace(DENSE, intermediate_size=18), "`18` feed-forward channels"),
        (8, replace(DENSE, num_attention_heads=4), "`4` query heads"),
    ],
)
def test_tp_names_one_thing_that_does_not_divide(size: int, facts: StageFacts, what: str) -> None:
    """One wrong size is one finding, however much it does not fit."""
    assert messages("tp", {"tp": size}, facts) == [
        f"`tp` size `{size}` does not fit the {what} of `thinker`"
    ]


def test_tp_lists_the_sizes_that_fit_everything() -> None:
    """28 heads, 4 kv heads and the widths of the 7B model."""
    [found], _ = look("tp", {"tp": 3})
    assert found.help == "sizes that fit: `1`, `2`, `4`"
    [found], _ = look("tp", {"tp": 3}, StageFacts(num_kv_heads=2, hidden_size=32))
    assert found.help == "sizes that fit: `1`, `2`, `4`, `8`, `16`, `32`"


def test_tp_says_which_facts_are_missing() -> None:
    """A check without its fact is skipped, not passed."""
    found, skipped = look("tp", {"tp": 2}, StageFacts())
    assert found == []
    assert len(skipped) == 4
    assert skipped[0] == "`tp` of `thinker`: the checkpoint does not give the number of query heads"


def test_pp_needs_a_layer_for_every_rank() -> None:
    """28 layers lie on at most 28 ranks."""
    assert messages("pp", {"pp": 28}) == []
    assert messages("pp", {"pp": 29}) == ["`pp` size `29` exceeds the `28` layers of `thinker`"]


def test_ep_needs_experts_that_divide() -> None:
    """A dense model has none; eight lie evenly on four ranks."""
    moe = StageFacts(num_experts=8)
    assert messages("ep", {"ep": 4}, moe) == []
    assert messages("ep", {"ep": 3}, moe) == [
        "`ep` size `3` does not divide the `8` experts of `thinker`"
    ]
    assert messages("ep", {"ep": 2}) == ["`ep` needs a mixture of experts, and `thinker` has none"]


def test_ulysses_takes_any_head_count_unless_told_to_be_strict() -> None:
    """`mode: strict` counts the heads that tensor parallelism leaves."""
    sizes = {"sp_ulysses": 4, "tp": 2}
    assert look("sp_ulysses", sizes) == ([], [])
    found, _ = look("sp_ulysses", sizes, options=STRICT)
    assert [finding.message for finding in found] == [
        "`sp_ulysses` x `tp` = `8` does not divide `28` heads"
    ]
    assert look("sp_ulysses", {"sp_ulysses": 7, "tp": 2}, options=STRICT) == ([], [])


def test_cfg_needs_a_model_that_takes_guidance() -> None:
    """Without guidance there is one branch only."""
    assert messages("cfg", {"cfg": 2}, StageFacts(guidance=True)) == []
    assert messages("cfg", {"cfg": 2}) == [
        "`cfg` needs a model with guidance, and `thinker` takes none"
    ]


def test_vae_pp_uses_ranks_that_are_there() -> None:
    """It brings none itself."""
    assert messages("vae_pp", {"vae_pp": 4}, world=4) == []
    assert messages("vae_pp", {"vae_pp": 5}, world=4) == [
        "`vae_pp` size `5` exceeds the `4` ranks of `thinker`"
    ]


@pytest.mark.parametrize(
    "options", [{}, {"shard": 4}, {"shard": 2, "replicate": 2}, {"replicate": 4}]
)
def test_hsdp_shards_times_replicas_make_the_world(options: dict[str, object]) -> None:
    """Without `shard` it is the size over `replicate`."""
    assert look("hsdp", {"hsdp": 4}, world=4, options=options) == ([], [])


@pytest.mark.parametrize(
    "options",
    [{"shard": 3}, {"replicate": 3}, {"shard": 2}, {"shard": 4, "replicate": 4}],
)
def test_hsdp_refuses_factors_that_do_not_make_its_size(options: dict[str, object]) -> None:
    """The product is what counts."""
    found, _ = look("hsdp", {"hsdp": 4}, world=4, options=options)
    assert [finding.code for finding in found] == ["AX037"]


def test_hsdp_copies_that_do_not_divide_the_ranks_are_at_fault_themselves() -> None:
    """The numbers that do are listed."""
    [found], _ = look("hsdp", {"hsdp": 4}, world=4, options={"replicate": 3})
    assert found.option == "replicate"
    assert found.message == "`hsdp` cannot make `replicate` = `3` copies over `4` ranks"
    assert found.help == "`4` ranks divide into `1`, `2`, `4` copies"


def test_hsdp_covers_exactly_the_ranks_of_the_stage() -> None:
    """The other axes have fixed how many there are."""
    assert messages("hsdp", {"hsdp": 2}, world=4) == [
        "`hsdp` size `2` is not the `4` ranks of `thinker`"
    ]


@pytest.mark.parametrize(
    ("name", "options"),
    [("pp", {}), ("ep", {}), ("cfg", {}), ("sp_ulysses", STRICT)],
)
def test_a_missing_fact_skips_the_check(name: str, options: dict[str, object]) -> None:
    """The plan lists the sentence."""
    found, skipped = look(name, {name: 2}, StageFacts(), options=options)
    assert found == []
    assert len(skipped) == 1
    assert skipped[0].startswith(f"`{name}` of `thinker`: the checkpoint does not")


@pytest.mark.parametrize("name", ["tp", "pp", "cfg", "sp_ulysses"])
def test_an_axis_of_size_one_asks_for_nothing(name: str) -> None:
    """It leaves the model as it is."""
    assert look(name, {name: 1}, StageFacts()) == ([], [])
