"""`weight_transfer_config`: keys, known ways, and the plan."""

from __future__ import annotations

import pytest

from stagemesh.plan.values import WeightTransferPlan
from tests.plan.rules.toys import Toy


def config(**keys: object) -> dict[str, object]:
    """A deploy file with that section."""
    return {"weight_transfer_config": keys}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, WeightTransferPlan(backend="nccl", options={})),
        (
            {"backend": "ipc", "packed": True},
            WeightTransferPlan(backend="ipc", options={"packed": True}),
        ),
        (
            {"reload_mode": "direct", "packed": True, "packed_num_buffers": 2},
            WeightTransferPlan(
                backend="nccl",
                options={"reload_mode": "direct", "packed": True, "packed_num_buffers": 2},
            ),
        ),
    ],
)
def test_the_section_is_in_the_plan(
    toy: Toy, keys: dict[str, object], expected: WeightTransferPlan
) -> None:
    """Nothing acts on it yet, and the plan says so."""
    plan = toy.plan(config(**keys))
    assert plan.weight_transfer == expected
    assert plan.not_runnable == ("nothing replaces weights while stages run yet",)
    toy.keeps(plan)


def test_without_the_section_weights_stay(toy: Toy) -> None:
    """`null` is as good as nothing."""
    assert toy.plan({"weight_transfer_config": None}).weight_transfer is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"backend": 1}, "CF012: `weight_transfer_config.backend` must be text, got `1`"),
        ({"backned": "ipc"}, "CF010: unknown key `backned` in `weight_transfer_config`"),
        ({"reload_mode": "all"}, "CF013: `weight_transfer_config.reload_mode` does not take `all`"),
        ({"packed_num_buffers": 0}, "CF013: `weight_transfer_config.packed_num_buffers` must be"),
    ],
)
def test_keys_are_typed(toy: Toy, keys: dict[str, object], message: str) -> None:
    """Unknown ones are refused."""
    [found] = toy.found(config(**keys))
    assert found.startswith(message)


def test_a_way_that_nobody_knows_is_warned_of(toy: Toy) -> None:
    """A plug-in may bring it."""
    assert toy.found(config(backend="ncl")) == [
        "PL121?: `weight_transfer_config` names `ncl`, which only a plug-in can bring"
    ]
