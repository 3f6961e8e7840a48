"""Devices are numbers into what is visible: what they mean, and what is refused (P21, P27, P28)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stagemesh.plan.render import plan_text
from stagemesh.plan.values import Plan
from tests.plan.rules.test_mps import cuda
from tests.plan.rules.toys import Toy, listed


def first_device(plan: Plan) -> str:
    """What the driver calls the device of the first rank."""
    return plan.devices.ids[plan.stages[0].replicas[0].ranks[0].device]


@pytest.mark.parametrize(
    ("ids", "devices", "called"),
    [
        (("5", "7"), "1", "7"),
        (("5", "7"), "0", "5"),
        (("GPU-aa", "GPU-bb"), "1", "GPU-bb"),
        (("1",), "0", "1"),
        (("0", "1"), "1", "1"),
    ],
)
def test_p21_a_device_is_a_number_into_what_is_visible(
    toy: Toy, ids: tuple[str, ...], devices: str, called: str
) -> None:
    """The plan shows which device of the machine it is, where that is another number."""
    toy = replace(toy, host=cuda(*ids))
    plan = toy.plan(listed({"devices": devices}))
    assert first_device(plan) == called
    toy.keeps(plan)
    shown = f"device {devices}: is {called} of this host\n" in plan_text(plan)
    assert shown is (ids != ("0", "1"))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"devices": "6"}, "`s0` asks for device `6`, and there are `2`"),
        ({"devices": "5"}, "`s0` asks for device `5`, and there are `2`"),
        (
            {"devices": "0,1,2", "tensor_parallel_size": 3},
            "`s0` asks for device `2`, and there are `2`",
        ),
    ],
)
def test_p21_a_device_that_is_not_visible_is_never_another_one(
    toy: Toy, entry: dict[str, object], message: str
) -> None:
    """Both numbers are told, and what is visible."""
    found = replace(toy, host=cuda("5", "7")).one(listed(entry))
    assert (found.code, found.message) == ("PL012", message)
    assert found.help == "devices are numbered from `0` to `1`; visible are `5,7`"


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ("0,0", "PL011: `s0` lists device `0` more than once"),
        ("0,x", "CF013: `s0.devices` must be like `0,1`, got `0,x`"),
        ("0,-1", "CF013: `s0.devices` must be like `0,1`, got `0,-1`"),
        ("", "CF013: `s0.devices` must be like `0,1`, got ``"),
        (True, "CF012: `s0.devices` must be text, got `true`"),
        (0.9, "CF012: `s0.devices` must be text, got `0.9`"),
        ([0.9], "CF012: `s0.devices` must be text, got a list"),
        ([0, 1], "CF012: `s0.devices` must be text, got a list"),
    ],
)
def test_p28_a_list_of_devices_is_text_with_distinct_numbers(
    toy: Toy, devices: object, message: str
) -> None:
    """Nothing is rounded, converted or taken twice."""
    toy = replace(toy, devices="4xH100")
    assert toy.found(listed({"devices": devices, "tensor_parallel_size": 2})) == [message]


def test_p27_a_saved_plan_is_for_the_devices_that_it_was_made_for(toy: Toy) -> None:
    """Others are refused, also when there are as many."""
    plan = replace(toy, host=cuda("5", "7")).plan(listed({"devices": "1"}))
    for ids in (("5", "6"), ("7", "5"), ("0", "1")):
        [found] = replace(toy, host=cuda(*ids)).reopened(plan).diagnostics
        assert found.code == "PL114"
        assert found.message == (
            f"the plan is for the devices `5,7`, and visible are the devices `{','.join(ids)}`"
        )
    assert replace(toy, host=cuda("5", "7", "1")).reopened(plan).plan == plan


def test_a_plan_without_names_of_devices_is_for_none(toy: Toy) -> None:
    """Made by hand, or edited."""
    toy = replace(toy, host=cuda("0"))
    plan = toy.plan({})
    edited = replace(plan, devices=replace(plan.devices, ids=()))
    [found] = toy.reopened(edited).diagnostics
    assert found.message == (
        "the plan is for devices without names, and visible are the devices `0`"
    )
