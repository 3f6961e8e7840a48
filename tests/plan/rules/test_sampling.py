"""Default request parameters: what the deploy file says, and what the model holds on to (T45)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import pytest

from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.build import PlanResult, build
from stagemesh.plan.make import make
from stagemesh.plan.params import by_key, constrained
from tests.plan.fit.test_messages import FIXTURES, HOST
from tests.plan.making import TOY, Said, catalog, request, solo
from tests.plan.rules.toys import DENOISER, Toy, listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Request parameters of the engine of these tests."""

    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end an answer."""
    detokenize: bool = True
    """Whether tokens become text."""
    extra_args: Mapping[str, object] = field(default_factory=dict)
    """Parameters that only the model knows."""


KNOWN: Final = replace(catalog(), engines={"toy": replace(TOY, params=Params)})


def planned(constraints: Mapping[str, object], **said: object) -> PlanResult:
    """Plan a stage with these constraints and these defaults."""
    model = solo(sampling_constraints=constraints)
    return build(request(model, {"thinker": Said(fields={"default_sampling_params": said})}), KNOWN)


def sampling(result: PlanResult) -> Mapping[str, object]:
    """The parameters of its stage."""
    assert result.plan is not None, result.diagnostics
    return result.plan.stages[0].sampling


def test_t45_required_tokens_are_appended_once_and_scalars_are_the_models() -> None:
    """The order of the file is kept."""
    required = {"stop_token_ids": [151704, 151645], "detokenize": False}
    result = planned(required, stop_token_ids=[100, 151704])
    assert result.diagnostics == ()
    assert sampling(result) == {"stop_token_ids": (100, 151704, 151645), "detokenize": False}


REAL: Final = FIXTURES / "qwen2_5_omni"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "{min_tokens: 50, max_tokens: 10}",
            "`min_tokens` is `50`, which is above `max_tokens` `10`",
        ),
        ("{min_tokens: 257}", "`min_tokens` is `257`, which is above `max_tokens` `256`"),
        ('{stop: ["a", ""]}', "`stop` holds an empty string"),
        ("{temperature: 0.0001}", "`temperature` must be `0` or at least `0.001`, got `0.0001`"),
    ],
)
def test_parameters_that_no_request_could_be_served_with_are_refused(said: str, told: str) -> None:
    """When planning, by the rules that a request meets."""
    inputs = PlanInputs(
        model=str(REAL),
        devices="4xH100",
        set_values=(f"thinker.default_sampling_params={said}",),
    )
    [found] = make(inputs, HOST).diagnostics
    assert (found.code, found.message) == ("PL028", f"parameters of `thinker` are refused: {told}")
    assert found.origin is not None
    assert found.origin.path.startswith("thinker.default_sampling_params.")


@pytest.mark.parametrize(
    ("said", "codes"),
    [
        ("{min_tokens: 50, max_tokens: 60}", []),
        ("{min_tokens: 256}", []),
        ("{min_tokens: 500, max_tokens: many}", ["CF012"]),
        ("{min_tokens: 500, max_token: 600}", ["PL024"]),
    ],
)
def test_parameters_are_judged_together_once_each_is_well(said: str, codes: list[str]) -> None:
    """A slip in one of them is the whole mistake."""
    values = (f"thinker.default_sampling_params={said}",)
    made = make(PlanInputs(model=str(REAL), devices="4xH100", set_values=values), HOST)
    assert [each.code for each in made.diagnostics] == codes


def test_extra_arguments_are_merged_by_key() -> None:
    """The model's own win; nothing else is lost, and nothing is warned of."""
    required = {"extra_args": {"seed": 7, "deep": {"a": 1}}}
    result = planned(required, extra_args={"seed": 1, "voice": "anna", "deep": {"b": 2}})
    assert result.diagnostics == ()
    assert sampling(result) == {
        "extra_args": {"seed": 7, "voice": "anna", "deep": {"a": 1, "b": 2}}
    }


def test_values_of_any_kind_are_told_apart() -> None:
    """Members of a list need not be numbers; `true` is no `1`."""
    assert constrained({"x": [{"a": 1}, 1, True]}, {"x": [{"a": 1}, 2]}) == {
        "x": ({"a": 1}, 1, True, 2)
    }


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": [1]}, {"a": [2]}, {"a": [2]}),
        ({"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}),
        ({"a": {"x": 1}}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {"a": {"y": 2}}, {"a": {"y": 2}}),
    ],
)
def test_parameters_are_laid_over_others_by_key(
    lower: dict[str, object], upper: dict[str, object], expected: dict[str, object]
) -> None:
    """Lists and scalars replace."""
    assert by_key(lower, upper) == expected


def test_parameters_of_a_stage_without_engine_are_kept_unchecked(toy: Toy) -> None:
    """Nobody says what it takes, and the plan says so."""
    toy = replace(toy, model=DENOISER)
    plan = toy.plan(listed({"default_sampling_params": {"num_inference_steps": 20}}))
    assert plan.stages[0].sampling == {"num_inference_steps": 20}
    assert "request parameters of stage `s0`: no engine says what it takes" in plan.skipped_checks
    toy.keeps(plan)
