"""Messages about layouts as users meet them: all factors, their places, and what would fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from stagemesh.config.host import Host
from stagemesh.config.inputs import GivenField, PlanInputs
from stagemesh.plan.diagnostics import diagnostics_text
from stagemesh.plan.fit.suggest import is_about_layout
from stagemesh.plan.make import Made, make
from stagemesh.spec.diagnostic import Diagnostic

FIXTURES: Final = Path(__file__).parents[2] / "fixtures"
HOST: Final = Host(kind="cpu", count=None, memory_bytes=None)
PLACES: Final = {
    "stages": [
        {"stage_id": 0, "devices": "0,1,2,3"},
        {"stage_id": 1, "devices": "4"},
        {"stage_id": 2, "devices": "4"},
    ]
}


def planned(model: str, deploy: Mapping[str, object], devices: str, **changes: Any) -> Made:  # noqa: ANN401
    """Plan a fixture under a deploy file."""
    return make(
        PlanInputs(model=str(FIXTURES / model), deploy_config=deploy, devices=devices, **changes),
        HOST,
    )


def text(made: Made) -> str:
    """Everything that is shown."""
    assert made.plan is None
    return diagnostics_text(made.diagnostics, made.documents)


def test_a_global_size_that_reaches_small_stages_shows_how_to_take_it_back() -> None:
    """P01: stage, devices, product and flag; and following the help gives a plan."""
    flag = GivenField(name="tensor_parallel_size", value=4, source="--tensor-parallel-size")
    shown = text(planned("qwen2_5_omni", PLACES, "5xH200", fields=(flag,)))
    assert "`talker` lists `1` device and needs `4`" in shown
    assert "`code2wav` lists `1` device and needs `4`" in shown
    assert "`tp` = `4` is set here (--tensor-parallel-size)" in shown
    said = "--set talker.tensor_parallel_size=1 --set code2wav.tensor_parallel_size=1"
    assert shown.count("this would fit") == 1
    assert f"this would fit: `{said}`" in shown
    values = tuple(word for word in said.split() if word != "--set")
    plan = planned("qwen2_5_omni", PLACES, "5xH200", fields=(flag,), set_values=values).plan
    assert plan is not None
    assert [stage.world_size for stage in plan.stages] == [4, 1, 1]


def test_every_factor_of_a_world_is_shown_with_its_place_and_the_product() -> None:
    """P23: two devices, and two axes that make four ranks."""
    deploy = {
        "stages": [{"stage_id": 0, "devices": "0,1", "ulysses_degree": 2, "cfg_parallel_size": 2}]
    }
    shown = text(planned("diffusers/qwen_image", deploy, "2xH200"))
    assert "`dit` lists `2` devices and needs `4`" in shown
    assert "`cfg` = `2` is set here" in shown
    assert "`sp_ulysses` = `2` is set here" in shown
    assert "`cfg` x `sp_ulysses` = `4` ranks" in shown
    assert "this would fit: `--set dit.ulysses_degree=1`" in shown


@pytest.mark.parametrize(("front", "mid", "codes"), [(0.9, 0.3, True), (0.6, 0.3, False)])
def test_shares_of_one_device_are_added_up(front: float, mid: float, *, codes: bool) -> None:
    """P25: the sum and both stages are named."""
    deploy = {
        "stages": [
            {"stage_id": 0, "devices": "0", "gpu_memory_utilization": front},
            {"stage_id": 1, "devices": "0", "gpu_memory_utilization": mid},
            {"stage_id": 2, "devices": "1"},
        ]
    }
    made = planned("qwen2_5_omni", deploy, "2xH200")
    assert (made.plan is None) is codes
    if codes:
        shown = text(made)
        assert "thinker" in shown
        assert "talker" in shown
        assert "1.2" in shown
        assert "this would fit: `--set " in shown


def test_a_share_that_does_not_hold_the_weights_is_a_matter_of_layout() -> None:
    """They get smaller on more ranks."""
    entry = {"stage_id": 0, "gpu_memory_utilization": 0.05}
    deploy = {"pipeline": "flux_split", "stages": [entry]}
    (found,) = planned("diffusers/flux", deploy, "8xH200").diagnostics
    assert found.code == "PL111"
    assert "this would fit: `--set text_encoder." in str(found.help)


@pytest.mark.parametrize("code", ["PL110", "PL111", "PL112", "PL130"])
def test_every_code_about_shares_and_caches_is_about_the_layout(code: str) -> None:
    """So that none stands in the way of what would help against another one."""
    assert is_about_layout(Diagnostic(code=code, message="too little"))
