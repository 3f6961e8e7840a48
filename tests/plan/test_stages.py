"""What the plan says about one stage: engine, arguments, parameters, axes, bindings, values."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass, replace

import pytest

from stagemesh.config.settings import Settings, Sourced
from stagemesh.plan.build import build
from stagemesh.plan.params import constrained
from stagemesh.plan.values import BindingPlan, MemoryPlan, PatternPlan
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.hooks import HookCategory, KernelSpec, LayerHookSpec
from stagemesh.spec.origin import Layer
from stagemesh.spec.patterns import Policy
from stagemesh.spec.pipeline import ExecutionType
from tests.plan.making import (
    Said,
    attempt,
    axis,
    catalog,
    codes,
    errors,
    place,
    planned,
    request,
    solo,
    sourced,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """Options of a stage."""

    speaker: str = "anna"
    """Refused when empty."""

    def __post_init__(self) -> None:
        """Refuse what a type cannot."""
        if not self.speaker:
            message = "`speaker` is empty"
            raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """Request parameters of a stage."""

    speed: float = 1.0
    """Any number."""


def said(**fields: object) -> dict[str, Said]:
    """What was said about the one stage."""
    return {"thinker": Said(fields=fields)}


@pytest.mark.parametrize("engine", [{}, {"engine": "auto"}, {"engine": "toy"}])
def test_the_default_engine_of_a_kind_runs_it(engine: dict[str, object]) -> None:
    """`auto` and nothing mean the same; arguments have their defaults."""
    [stage] = planned(request(solo(), said(**engine))).stages
    assert stage.engine == "toy"
    assert stage.engine_args == {"max_num_seqs": 8}


def test_a_kind_without_engine_is_planned_but_not_run() -> None:
    """`picture` runs diffusion only when it is named."""
    plan = planned(request(solo(ExecutionType.DIFFUSION), {"thinker": Said(axes=[axis("tp", 2)])}))
    assert plan.stages[0].engine == "none"
    assert plan.not_runnable == ("`thinker`: no engine runs `diffusion` stages yet",)
    named = planned(request(solo(ExecutionType.DIFFUSION), said(engine="picture")))
    assert named.stages[0].engine == "picture"
    assert named.not_runnable == ()


def test_an_unknown_engine_is_refused_with_the_nearest() -> None:
    """Its arguments are not judged on top of that."""
    [found] = errors(
        request(solo(), said(engine="tor", max_num_seqs=2, default_sampling_params={}))
    )
    assert found.message == "unknown engine `tor`"
    assert found.help == "did you mean `toy`? allowed here: `auto`, `toy`"


def test_an_engine_that_does_not_run_the_kind_is_refused() -> None:
    """It exists, but not for this."""
    [found] = errors(request(solo(), said(engine="picture")))
    assert found.message == "engine `picture` does not run the `llm_ar` stage `thinker`"


@pytest.mark.parametrize("engine", ["tor", "picture"])
def test_parameters_beside_a_wrong_engine_are_judged_by_those_that_may_be_meant(
    engine: str,
) -> None:
    """What none of them takes is wrong; what one of them takes is not."""
    given = {"temperature": "hot", "stop_token_ids": "7", "tempo": 1, "speed": "fast", "depth": 1}
    asked = request(solo(params=Speech), said(engine=engine, default_sampling_params=given))
    known = catalog(asked.pipeline)
    params = make_dataclass(
        "DeepParams", [("depth", int, 1), ("stop_token_ids", str, "")], frozen=True
    )
    warm = make_dataclass("WarmParams", [("temperature", float, 1)], bases=(params,), frozen=True)
    deep = replace(known.engines["toy"], name="deep", params=warm, default_for=frozenset())
    found = build(asked, replace(known, engines={**known.engines, "deep": deep})).diagnostics
    told = [(each.code, each.message) for each in found[1:]]
    assert told == [
        ("CF012", "`temperature` must be a number, got text `hot`"),
        ("PL024", "stage `thinker` knows no parameter `tempo`"),
        ("CF012", "`speed` must be a number, got text `fast`"),
    ]


def test_parameters_are_not_judged_where_no_engine_can_be_meant() -> None:
    """Nothing says what a stage of that kind takes."""
    given = request(solo(), said(engine="tor", default_sampling_params={"tempo": 1}))
    found = build(given, replace(catalog(given.pipeline), engines={})).diagnostics
    assert [each.code for each in found] == ["PL020"]


def test_a_field_that_the_engine_does_not_take_is_refused() -> None:
    """Nothing that is written is ignored."""
    [found] = errors(request(solo(), said(max_num_seq=2)))
    assert found.message == "engine `toy` of `thinker` takes no `max_num_seq`"
    assert found.help == "did you mean `max_num_seqs`?"


def test_a_field_that_another_engine_takes_names_that_engine() -> None:
    """It may be what was meant."""
    options = make_dataclass("DeepOptions", [("depth", int, 1)], frozen=True)
    given = request(solo(), said(depth=2))
    known = catalog(given.pipeline)
    deep = replace(known.engines["toy"], name="deep", options=options, default_for=frozenset())
    found = build(given, replace(known, engines={**known.engines, "deep": deep})).diagnostics
    assert [each.help for each in found] == ["engines that take it: `deep`"]


def test_a_field_of_another_kind_of_stage_is_refused() -> None:
    """The message names the kind that has it."""
    [found] = errors(request(solo(), said(vae_use_tiling=True)))
    assert found.code == "PL027"
    assert found.message == "`thinker` is a `llm_ar` stage, which has no `vae_use_tiling`"
    assert found.help == "`vae_use_tiling` is a field of `diffusion` stages; leave it out"


def test_a_field_on_which_the_engine_does_not_act_makes_the_plan_not_runnable() -> None:
    """It is kept, shown, and never silently lost."""
    plan = planned(request(solo(), said(enforce_eager=True)))
    assert plan.stages[0].stage_args == {"enforce_eager": True}
    assert "`thinker`: engine `toy` does not act on `enforce_eager` yet" in plan.not_runnable


def test_an_argument_has_the_type_that_the_stages_own_engine_declares() -> None:
    """Another engine may have a field of the same name and another type."""
    [found] = errors(request(solo(), said(max_num_seqs="many")))
    assert (found.code, found.origin) == ("CF012", place())
    assert found.message == "`thinker.max_num_seqs` must be a whole number, got text `many`"


def test_what_the_options_type_refuses_is_told_in_its_words() -> None:
    """A plug-in may know more than a type says."""
    [found] = errors(request(solo(), said(max_num_seqs=1001)))
    assert found.message == "engine `toy` of `thinker` says: `max_num_seqs` is at most `1000`"
    assert found.origin is not None


def test_additional_config_is_checked_against_the_stage_and_filled_in() -> None:
    """The stage's options name what there is."""
    model = solo(options=Voice)
    assert planned(request(model)).stages[0].model_args == {"speaker": "anna"}
    given = request(model, said(additional_config={"speaker": "ben"}))
    assert planned(given).stages[0].model_args == {"speaker": "ben"}
    [found] = errors(request(model, said(additional_config={"speakers": "ben"})))
    assert found.message == "stage `thinker` knows no parameter `speakers`"
    assert codes(request(model, said(additional_config={"speaker": 1}))) == ["CF012"]
    assert codes(request(model, said(additional_config={"speaker": ""}))) == ["PL025"]


def test_default_parameters_come_from_engine_and_stage() -> None:
    """Either may know a name; types are checked; what is not given is left to them."""
    model = solo(params=Speech)
    given = request(model, said(default_sampling_params={"temperature": 1, "speed": 2.0}))
    assert planned(given).stages[0].sampling == {"temperature": 1.0, "speed": 2.0}
    wrong = said(default_sampling_params={"temperature": "hot", "speeed": 1})
    assert codes(request(model, wrong)) == ["CF012", "PL024"]


def test_a_member_at_fault_is_told_where_it_was_written() -> None:
    """A mapping that several layers wrote knows the place of each member."""
    part: Sourced[object] = Sourced(value=1, origin=place("other.yaml"))
    whole = replace(sourced({"speeed": 1}), parts={"speeed": part})
    given = request(solo())
    stage = replace(given.settings.stages[0], fields={"default_sampling_params": whole})
    settings = Settings(fields={}, connectors={}, stages=(stage,))
    [found] = build(replace(given, settings=settings), catalog()).diagnostics
    assert str(found.origin) == "other.yaml:1:3"


def test_what_the_pipeline_holds_on_to_overlays_the_rest() -> None:
    """Scalars replace; lists are appended, each member once."""
    constraints = {"stop_token_ids": [8294], "detokenize": False}
    given = {"stop_token_ids": (1, 8294, 1), "detokenize": True, "temperature": 0.5}
    assert constrained(given, constraints) == {
        "stop_token_ids": (1, 8294),
        "detokenize": False,
        "temperature": 0.5,
    }
    assert constrained({}, constraints) == {"stop_token_ids": (8294,), "detokenize": False}


def test_what_the_pipeline_holds_on_to_replaces_with_a_warning() -> None:
    """A value that was written and does not hold is told; lists lose nothing."""
    model = solo(sampling_constraints={"temperature": 1, "stop_token_ids": [7]})
    given = {"temperature": 0.5, "stop_token_ids": (1,)}
    result = attempt(request(model, said(default_sampling_params=given)))
    assert result.plan is not None
    assert result.plan.stages[0].sampling == {"temperature": 1.0, "stop_token_ids": (1, 7)}
    [found] = result.diagnostics
    assert (found.code, found.is_error) == ("PL026", False)
    assert found.message.startswith("`thinker.temperature` is `1.0`: the model does not take")


@pytest.mark.parametrize(
    ("constraints", "code"), [({"nonsense": 1}, "PL024"), ({"temperature": "hot"}, "CF012")]
)
def test_what_the_pipeline_holds_on_to_must_be_known_too(
    constraints: dict[str, object], code: str
) -> None:
    """A mistake of the model's author, told as such."""
    [found] = errors(request(solo(sampling_constraints=constraints)))
    assert found.code == code
    assert str(found.origin) == "`sampling_constraints` of stage `thinker`"


@pytest.mark.parametrize(("value", "expected"), [({"A": "1"}, {"A": "1"}), (None, {})])
def test_the_environment_is_written_down(value: object, expected: dict[str, str]) -> None:
    """`null` clears it."""
    assert planned(request(solo(), said(env=value))).stages[0].env == expected


def test_devices_that_are_cleared_are_placed_automatically() -> None:
    """`null` is a value."""
    assert planned(request(solo(), said(devices=None))).stages[0].replicas[0].ranks[0].device == 0


def test_the_policy_of_the_replicas_is_the_stages_policy() -> None:
    """Without replicas it is what costs nothing."""
    axes = [axis("stage_replica", 2, Policy.LEAST_QUEUE), axis("dp", 2, Policy.RANDOM)]
    [stage] = planned(request(solo(), {"thinker": Said(axes=axes)})).stages
    assert stage.policy == "least_queue"
    routings = {each.axis: each.routing for each in stage.axes}
    assert routings["dp"] == PatternPlan(name="RouteByStage", args={"policy": "random"})
    assert planned(request(solo())).stages[0].policy == "round_robin"


def test_a_policy_changes_only_axes_that_route_requests() -> None:
    """`tp` broadcasts, whatever is said."""
    [stage] = planned(
        request(solo(), {"thinker": Said(axes=[axis("tp", 2, Policy.RANDOM)])})
    ).stages
    assert stage.axes[0].routing == PatternPlan(name="Broadcast", args={})


def test_every_given_value_is_listed_with_its_place_and_what_it_replaced() -> None:
    """Paths of axes begin with `axes.`."""
    low = Sourced(value=4, origin=place("low.yaml", Layer.DEPLOY))
    high = Sourced(value=2, origin=place("high.yaml"), superseded=(low,))
    given = request(
        solo(ExecutionType.DIFFUSION),
        {"thinker": Said(axes=[axis("sp_ulysses", 2, mode="strict")], fields={"devices": "0,1"})},
    )
    axes = given.settings.stages[0].axes
    stage = replace(
        given.settings.stages[0],
        axes={"sp_ulysses": replace(axes["sp_ulysses"], size=high)},
    )
    plan = build(
        replace(given, settings=Settings(fields={}, connectors={}, stages=(stage,))), catalog()
    ).plan
    assert plan is not None
    values = plan.stages[0].values
    assert set(values) == {"axes.sp_ulysses.size", "axes.sp_ulysses.mode", "devices"}
    size = values["axes.sp_ulysses.size"]
    assert (size.value, size.layer, size.origin) == (2, "strategy", "high.yaml:1:3")
    assert [(old.value, old.origin) for old in size.superseded] == [(4, "low.yaml:1:3")]


def test_hooks_and_kernels_are_listed_in_the_order_they_are_bound() -> None:
    """By category, then priority; axes of size 1 bind nothing."""
    base = catalog()
    hook = LayerHookSpec(hook_id="h", target="*", category=HookCategory.FFN_PRE)
    kernel = KernelSpec(kernel_id="k", target="*", category=HookCategory.LINEAR, priority=5)
    axes = {
        **base.axes,
        "tp": replace(base.axes["tp"], layer_hook_specs=(hook,), kernel_specs=(kernel,)),
        "dp": replace(base.axes["dp"], layer_hook_specs=(hook,)),
    }
    given = request(solo(), {"thinker": Said(axes=[axis("tp", 2), axis("dp", 1)])})
    plan = build(given, replace(base, axes=axes)).plan
    assert plan is not None
    assert plan.stages[0].bindings == (
        BindingPlan(kind="kernel", name="k", target="*", category="linear", priority=5, axis="tp"),
        BindingPlan(kind="hook", name="h", target="*", category="ffn_pre", priority=0, axis="tp"),
    )


def test_memory_is_what_the_engine_expects_of_a_rank() -> None:
    """Without facts it is unknown, and the plan says so."""
    plan = planned(request(solo(), facts=StageFacts(weight_bytes=7)))
    assert plan.stages[0].memory == MemoryPlan(weights=7, cache=2, workspace=1)
    assert planned(request(solo())).stages[0].memory is None
