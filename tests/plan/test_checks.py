"""Rules over the axes of a stage, and that one cause gives one finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stagemesh.config.settings import Sourced
from stagemesh.plan.build import PlanRequest
from stagemesh.plan.checks import check_stack
from stagemesh.plan.report import Report
from stagemesh.plan.stack import stack_of
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.hooks import HookCategory, KernelSpec, LayerHookSpec
from stagemesh.spec.pipeline import ExecutionType
from stagemesh.spec.registry import AXES
from tests.plan.making import (
    Said,
    attempt,
    axis,
    codes,
    errors,
    place,
    planned,
    request,
    solo,
)

DIFFUSION = ExecutionType.DIFFUSION
MOE = StageFacts(num_experts=8)


def test_an_axis_of_another_kind_of_stage_is_refused() -> None:
    """The help lists the kinds that it fits; nothing else is said about it."""
    [found] = errors(request(solo(), {"thinker": Said(axes=[axis("sp_ring", 2)])}))
    assert found.code == "AX020"
    assert found.message == "`sp_ring` does not fit the `llm_ar` stage `thinker`"
    assert found.help == "`sp_ring` fits stages of kind `diffusion`"


def test_the_axes_that_fit_are_checked_beside_one_that_does_not() -> None:
    """One run of the planner tells both."""
    axes = [axis("cfg", 2), axis("ep", 2), axis("tp", 2)]
    assert codes(
        request(solo(), {"thinker": Said(axes=axes)}, facts=StageFacts(num_experts=0))
    ) == [
        "AX020",
        "AX032",
    ]


@pytest.mark.parametrize("other", ["tp", "pp", "ep", "dp"])
def test_hsdp_excludes_axes_with_a_reason(other: str) -> None:
    """Pair rules hold whatever the order of the entries, and each pair is told once."""
    entries = [axis("hsdp", 2), axis(other, 2)]
    for order in (entries, entries[::-1]):
        [found] = errors(request(solo(DIFFUSION), {"thinker": Said(axes=order)}, facts=MOE))
        assert found.code == "AX021"
        assert found.message == f"`hsdp` and `{other}` cannot be stacked on `thinker`"
        assert found.help is not None
        assert found.help.startswith("remove one of them: ")
        assert [note.message for note in found.notes] == [f"`{other}` = `2` is set here"]


def test_an_excluded_axis_of_size_one_changes_nothing() -> None:
    """It is not there."""
    said = {"thinker": Said(axes=[axis("hsdp", 2), axis("tp", 1)])}
    assert planned(request(solo(DIFFUSION), said)).stages[0].world_size == 2


@pytest.mark.parametrize("size", [1, 3, 8])
def test_a_size_that_follows_from_others_must_match(size: int) -> None:
    """`ep` over tp 2 and dp 2 is 4, and nothing else is."""
    said = {"thinker": Said(axes=[axis("ep", size), axis("tp", 2), axis("dp", 2)])}
    [found] = errors(request(solo(), said, facts=MOE))
    assert found.message == f"`ep` size `{size}` does not match tp x dp = `4`"
    assert found.help == "write `size: 4`"
    assert [note.message for note in found.notes] == [
        "`dp` = `2` is set here",
        "`tp` = `2` is set here",
    ]


@pytest.mark.parametrize("size", [4, None])
def test_a_size_that_follows_from_others_may_be_left_out(size: int | None) -> None:
    """A deploy flag only switches the axis on."""
    said = {"thinker": Said(axes=[axis("ep", size), axis("tp", 2), axis("dp", 2)])}
    [stage] = planned(request(solo(), said, facts=MOE)).stages
    assert stage.world_size == 4
    assert {each.axis: each.size for each in stage.axes}["ep"] == 4


def test_a_flag_that_has_nothing_to_follow_means_one() -> None:
    """`ep` alone covers the one rank there is."""
    [stage] = planned(request(solo(), {"thinker": Said(axes=[axis("ep", None)])}, facts=MOE)).stages
    assert [(each.axis, each.size) for each in stage.axes] == [("ep", 1)]


def test_ep_of_a_diffusion_stage_spans_the_sequence_axes() -> None:
    """Its group unites tp, both sequence axes, cfg and dp."""
    axes = [axis("ep", 8), axis("sp_ulysses", 2), axis("sp_ring", 2), axis("cfg", 2)]
    facts = StageFacts(num_experts=8, guidance=True)
    [stage] = planned(request(solo(DIFFUSION), {"thinker": Said(axes=axes)}, facts=facts)).stages
    assert {each.axis: each.groups for each in stage.axes}["ep"] == (tuple(range(8)),)


def test_a_rule_of_an_axis_points_to_the_other_axes_it_weighs() -> None:
    """Strict Ulysses tells where `tp` was set."""
    axes = [axis("sp_ulysses", 2, mode="strict"), axis("tp", 2)]
    facts = StageFacts(num_attention_heads=6, num_kv_heads=6, hidden_size=6, intermediate_size=6)
    [found] = errors(request(solo(DIFFUSION), {"thinker": Said(axes=axes)}, facts=facts))
    assert found.code == "AX034"
    assert [note.message for note in found.notes] == ["`tp` = `2` is set here"]


def decoding(mode: str, **fields: object) -> PlanRequest:
    """Two ranks that decode a picture together."""
    axes = [axis("sp_ulysses", 2), axis("vae_pp", 2, mode=mode)]
    return request(solo(DIFFUSION), {"thinker": Said(axes=axes, fields=fields)})


def test_an_axis_switches_on_the_fields_that_it_needs() -> None:
    """Decoding by tiles sets tiling, with its place; other modes leave it alone."""
    [stage] = planned(decoding("tile")).stages
    assert stage.stage_args == {"vae_use_tiling": True}
    assert stage.values["vae_use_tiling"].origin == stage.values["axes.vae_pp.size"].origin
    assert planned(decoding("tile", vae_use_tiling=True)).stages[0].stage_args == stage.stage_args
    assert planned(decoding("tile", vae_use_tiling=None)).stages[0].stage_args == stage.stage_args
    [other] = planned(decoding("spatial_shard_width", vae_use_tiling=False)).stages
    assert other.stage_args == {"vae_use_tiling": False}


def test_a_field_that_says_the_opposite_of_what_an_axis_needs_is_refused() -> None:
    """Both places are told."""
    [found] = errors(decoding("tile", vae_use_tiling=False))
    assert found.code == "AX050"
    assert found.message == "`vae_pp` on `thinker` needs `vae_use_tiling` = `true`, got `false`"
    assert [note.message for note in found.notes] == ["`vae_pp` = `2` is set here"]


@pytest.mark.parametrize(
    ("size", "value", "codes_found"),
    [(2, "fp8", ["AX051"]), (2, "auto", []), (2, None, []), (1, "fp8", [])],
)
def test_a_field_that_cannot_go_with_an_axis_is_refused_with_a_reason(
    size: int, value: object, codes_found: list[str]
) -> None:
    """P63: a quantised cache and a ring, at plan time."""
    fields = {"diffusion_kv_cache_dtype": value}
    said = {"thinker": Said(axes=[axis("sp_ring", size)], fields=fields)}
    result = attempt(request(solo(DIFFUSION), said))
    found = [each for each in result.diagnostics if each.is_error]
    assert [each.code for each in found] == codes_found
    for each in found:
        assert each.message == (
            "`sp_ring` and `diffusion_kv_cache_dtype` = `fp8` of `thinker` exclude each other"
        )
        assert str(each.help).startswith("remove one of them: ")


def test_what_an_axis_cannot_settle_is_told_alone() -> None:
    """Without a size of `hsdp` there are no ranks to check the others against."""
    axes = [axis("hsdp", None), axis("vae_pp", 2)]
    assert codes(request(solo(DIFFUSION), {"thinker": Said(axes=axes)})) == ["AX040"]


def test_an_option_at_fault_is_told_where_it_was_written() -> None:
    """Rather than where the axis was."""
    elsewhere: Sourced[object] = Sourced(value="user", origin=place("other.yaml"))
    given = request(solo(), {"thinker": Said(axes=[axis("dp", 2)])})
    [stage] = given.settings.stages
    dp = replace(stage.axes["dp"], options={"key": elsewhere})
    settings = replace(given.settings, stages=(replace(stage, axes={"dp": dp}),))
    [found] = errors(replace(given, settings=settings))
    assert (found.code, str(found.origin)) == ("AX048", "other.yaml:1:3")


def test_an_option_that_acts_alone_is_not_lost_where_the_size_is_one() -> None:
    """Nobody shares the text encoder yet, and the plan says so."""
    axes = [axis("cfg", 2), axis("tp", 1, text_encoder=2)]
    said = {"thinker": Said(axes=axes, fields={"engine": "picture"})}
    plan = planned(request(solo(DIFFUSION), said, facts=StageFacts(guidance=True)))
    assert "`thinker`: engine `picture` does not execute `tp` yet" in plan.not_runnable
    plain = {"thinker": Said(axes=[axes[0], axis("tp", 1)], fields={"engine": "picture"})}
    plan = planned(request(solo(DIFFUSION), plain, facts=StageFacts(guidance=True)))
    assert not any("`tp`" in reason for reason in plan.not_runnable)


def test_missing_facts_become_skipped_checks() -> None:
    """The plan is valid and says what nobody could look at."""
    plan = planned(request(solo(), {"thinker": Said(axes=[axis("pp", 2)])}))
    assert plan.skipped_checks[0] == (
        "`pp` of `thinker`: the checkpoint does not give the number of layers"
    )


def test_a_slip_of_the_keyboard_does_not_fill_the_memory() -> None:
    """A billion ranks are refused before they are counted out."""
    assert codes(request(solo(), {"thinker": Said(axes=[axis("dp", 10**9)])})) == ["AX024"]


def test_experts_with_nothing_to_lie_over_ask_for_ranks() -> None:
    """Experts are spread over ranks that other axes bring."""
    [found] = errors(request(solo(), {"thinker": Said(axes=[axis("ep", 2)])}, facts=MOE))
    assert found.help == "`ep` lies over the ranks of tp x dp: make them `2`, or leave `ep` out"


def test_mistakes_of_all_stages_are_told_together() -> None:
    """One run of the planner finds them all."""
    model = solo()
    said = {"thinker": Said(axes=[axis("ep", 2), axis("dp", 1)], fields={"nonsense": 1})}
    assert codes(request(model, said, facts=MOE)) == ["AX022", "PL022"]


def hooked(name: str, priority: int) -> Diagnostic | None:
    """Stack `tp` and `dp`, both binding a hook; return the conflict."""
    spec = LayerHookSpec(hook_id="h", target="*.attn", category=HookCategory.LINEAR)
    kernel = KernelSpec(
        kernel_id="k", target="*.attn", category=HookCategory.LINEAR, priority=priority
    )
    axes = {each.name: each for each in AXES.declarations()}
    axes["tp"] = replace(axes["tp"], layer_hook_specs=(spec,))
    axes["dp"] = replace(axes["dp"], kernel_specs=(kernel,))
    given = request(solo(), {"thinker": Said(axes=[axis("tp", 2), axis(name, 2)])})
    stack = stack_of(given.pipeline.stages[0], given.settings.stages[0], StageFacts(), axes)
    report = Report()
    assert check_stack(stack, report)
    return next(iter(report.diagnostics), None)


def test_two_axes_that_bind_the_same_place_conflict() -> None:
    """Equal category, target and priority have no order."""
    found = hooked("dp", 0)
    assert found is not None
    assert found.message == "`dp` and `tp` both bind `*.attn`"


def test_another_priority_settles_it() -> None:
    """Then there is an order."""
    assert hooked("dp", 1) is None


@pytest.mark.parametrize("others", [{}, {"tp": 2}, {"tp": 2, "dp": 2}])
@pytest.mark.parametrize("size", [2, 3, None])
def test_without_experts_no_size_is_offered(size: int | None, others: dict[str, int]) -> None:
    """The size that would follow from the other axes is refused as well, so it is not named."""
    axes = [axis("ep", size), *(axis(name, each) for name, each in others.items())]
    given = request(solo(), {"thinker": Said(axes=axes)}, facts=StageFacts(num_experts=0))
    if size is None and not others:
        assert planned(given).stages[0].world_size == 1
    else:
        assert codes(given) == ["AX032"]
