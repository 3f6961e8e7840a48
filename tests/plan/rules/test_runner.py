"""The model runner of every stage (T42): the deploy file's, the stage's own, the platform's."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from stagemesh.plan.render import plan_text
from stagemesh.plan.values import Plan
from stagemesh.spec.duplex import DuplexModel
from tests.plan.rules.toys import AR, DIT, TWO, Toy, chain, listed

NATIVE: Final = chain(AR, AR, supports_native_mrv2_data_plane=True)
QUIET: Final = {"model_runner": "v2"}


def runners(plan: Plan) -> list[str]:
    """The runner of every stage."""
    return [stage.setup.runner for stage in plan.stages]


@pytest.mark.parametrize(
    ("deploy", "expected"),
    [
        ({}, ["v1", "v1"]),
        ({"model_runner": "v1"}, ["v1", "v1"]),
        ({"model_runner": "v2"}, ["v2", "v2"]),
        ({"model_runner": "v2", **listed({}, {"model_runner": "v1"})}, ["v2", "v1"]),
        (listed({"model_runner": "v2"}), ["v2", "v1"]),
        ({"model_runner": "v2", "platforms": {"cpu": {"model_runner": "v1"}}}, ["v1", "v1"]),
    ],
)
def test_a_stage_has_its_own_runner_or_that_of_all(
    toy: Toy, deploy: dict[str, object], expected: list[str]
) -> None:
    """A section of the platform may take back what the file says for all."""
    toy = replace(toy, model=NATIVE)
    plan = toy.plan(deploy)
    assert runners(plan) == expected
    toy.keeps(plan)


def test_an_engine_without_the_newer_runner_makes_the_plan_not_runnable(toy: Toy) -> None:
    """The older one is what every engine has."""
    toy = replace(toy, model=NATIVE)
    plan = toy.plan(listed({"model_runner": "v2"}, {"model_runner": "v1"}))
    assert plan.not_runnable == ("`s0`: no engine has model runner `v2` yet",)
    assert "s0: model runner v2\n" in plan_text(plan)


@pytest.mark.parametrize(("devices", "platform"), [("2xAscend910B", "npu"), ("2xMax1550", "xpu")])
def test_t42_the_newer_runner_is_not_on_every_platform(
    toy: Toy, devices: str, platform: str
) -> None:
    """All stages are told at once, with the section that would help, and nothing besides."""
    toy = replace(toy, model=TWO, devices=devices)
    (found,) = toy.build(QUIET).diagnostics
    assert found.message == f"model runner `v2` does not run `s0` on `{platform}`"
    assert [note.message for note in found.notes] == [
        f"model runner `v2` does not run `s1` on `{platform}`"
    ]
    assert f"`platforms.{platform}`" in (found.help or "")
    section = {"platforms": {platform: {"model_runner": "v1"}}}
    assert runners(toy.plan({**QUIET, **section})) == ["v1", "v1"]


def test_t42_a_stage_may_have_it_there(toy: Toy) -> None:
    """It says so in its pipeline."""
    model = chain(AR, AR, supports_native_mrv2_data_plane=True, mrv2_platforms=("npu",))
    toy = replace(toy, model=model, devices="2xAscend910B")
    assert runners(toy.plan(QUIET)) == ["v2", "v2"]
    [found] = replace(toy, devices="2xMax1550").found(QUIET)
    assert found.startswith("PL086: model runner `v2` does not run `s0` on `xpu`")


@pytest.mark.parametrize("devices", ["2xH100", "2xMI300X", "2xMTTS4000", "2"])
def test_t42_stages_without_native_support_are_warned_of_once(toy: Toy, devices: str) -> None:
    """One warning for all of them; the plan stands."""
    toy = replace(toy, model=chain(AR, DIT, AR), devices=devices)
    result = toy.build(QUIET)
    assert result.plan is not None
    [found] = result.diagnostics
    assert (found.code, found.is_error) == ("PL087", False)
    assert found.message == "`s0` does not hand on natively under model runner `v2`"
    assert [note.message for note in found.notes] == ["so is `s1`", "so is `s2`"]
    assert replace(toy, model=NATIVE).found(QUIET) == []


def test_t42_derived_values_cannot_be_given(toy: Toy) -> None:
    """They follow from the runner and from the pipeline."""
    for name in ("use_v2_model_runner", "supports_native_mrv2_data_plane"):
        [entry] = toy.found(listed({name: True}))
        [extra] = toy.found(listed({"engine_extras": {name: True}}))
        assert entry == extra == f"CF027: `{name}` follows from other values and cannot be given"


def test_t43_a_runner_that_does_not_exist_is_refused(toy: Toy) -> None:
    """There are two."""
    [found] = toy.found({"model_runner": "v3"})
    assert found == "CF013: `model_runner` does not take `v3`"


def test_full_duplex_needs_a_pipeline_that_has_it_on_the_newer_runner(toy: Toy) -> None:
    """Told once, whatever the number of stages; turns are taken by any."""
    model = replace(NATIVE, duplex=DuplexModel(plugin="nowhere:plugin"))
    toy = replace(toy, model=model)
    talking = {"session_mode": "duplex", **QUIET}
    found = toy.one(talking)
    assert found.code == "PL088"
    assert found.message == "model runner `v2` of `toy` takes no full-duplex sessions"
    assert [note.message for note in found.notes] == ["so is `s1`"]
    assert toy.found(QUIET) == []
    assert model.duplex is not None
    able = replace(model, duplex=replace(model.duplex, supports_duplex_mrv2=True))
    assert replace(toy, model=able).found(talking) == []
