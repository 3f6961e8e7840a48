"""LoRA options: effective or refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.plan.rules.toys import DENOISER, MIXED, ONE, TWO, Toy, listed


def test_a_switch_that_is_off_asks_for_nothing(toy: Toy) -> None:
    """A plan with it runs as well as one without."""
    assert toy.plan(listed({"enable_lora": False})).not_runnable == ()
    plan = toy.plan(listed({"enable_lora": True}))
    assert plan.not_runnable == ("`s0`: engine `toy` does not act on `enable_lora` yet",)


def test_an_override_is_the_documented_way(toy: Toy) -> None:
    """`--stage-overrides` names one stage."""
    overrides = {"0": {"enable_lora": True, "max_lora_rank": 64}}
    plan = replace(toy, model=TWO).plan({}, overrides=overrides)
    assert plan.stages[0].stage_args == {"enable_lora": True, "max_lora_rank": 64}
    assert plan.stages[1].stage_args == {}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"lora_path": "/a"}, []),
        ({"lora_path": ["/a"], "lora_backend": "peft", "lora_scale": 0.5}, []),
        ({"lora_path": ["/a", "/b"], "lora_backend": "distill"}, []),
        ({"lora_backend": "peft", "max_cpu_loras": 2}, []),
        (
            {"lora_path": ["/a", "/b"]},
            ["PL093: `lora_backend: peft` of `s0` takes one `lora_path`, got `2`"],
        ),
        ({"lora_path": " "}, ["CF013: `s0.lora_path` must not be empty"]),
        ({"lora_path": []}, ["PL094: `lora_path` of `s0` names no adapter"]),
        ({"lora_path": ["/a", ""]}, ["CF013: `s0.lora_path[1]` must not be empty"]),
        ({"max_cpu_loras": 0}, ["CF013: `s0.max_cpu_loras` must be `>= 1`, got `0`"]),
    ],
)
def test_a_diffusion_stage_loads_adapters(
    toy: Toy, entry: dict[str, Any], expected: list[str]
) -> None:
    """`distill` works on loaded ones alone, `peft` on one of them."""
    assert replace(toy, model=DENOISER).found(listed(entry)) == expected


def test_a_diffusion_stage_refuses_the_switch_and_names_what_it_has(toy: Toy) -> None:
    """So does a stage by tokens for the fields of the other kind."""
    found = replace(toy, model=DENOISER).one(listed({"enable_lora": True}))
    assert found.message == "`s0` is a `diffusion` stage, which has no `enable_lora`"
    assert found.help == "write `lora_path`, with `lora_scale` and `lora_backend`"
    found = replace(toy, model=ONE).one(listed({"lora_path": "/a"}))
    assert found.help == "write `enable_lora: true`; requests bring the adapters"


def test_options_of_each_kind_live_side_by_side(toy: Toy) -> None:
    """`max_cpu_loras` is a field of both."""
    toy = replace(toy, model=MIXED)
    assert toy.found(listed({"enable_lora": True, "max_cpu_loras": 4}, {"max_cpu_loras": 1})) == []
