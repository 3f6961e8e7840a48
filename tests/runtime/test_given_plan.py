"""The plan of what a program gives to `Omni`, and what it is told about it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.inputs import PlanInputs
from stagemesh.runtime.given_plan import given_fields, plan_of

SPEECH: Final = str(Path(__file__).parents[1] / "fixtures" / "qwen2_5_omni")
OTHERS: Final = {
    "stage_id": 0,
    "omni_master_address": "192.0.2.1",
    "omni_master_port": 5000,
}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"insecure_no_token": True}, 1),
        ({"insecure_no_token": True, **OTHERS}, 0),
        ({"insecure_no_token": False}, 0),
        ({}, 0),
    ],
)
def test_a_permission_that_nobody_could_use_is_told(
    given: Mapping[str, object], told: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As commands tell it, with the other warnings of the plan, and called as it was given."""
    inputs = PlanInputs(model=SPEECH, fields=given_fields(given), devices="4xH200")
    with caplog.at_level(logging.WARNING):
        plan = plan_of(SPEECH, inputs)
    permissions = [each for each in caplog.messages if "RT025" in each]
    assert len(permissions) == told
    for each in permissions:
        assert each.startswith(
            "warning[RT025]: `Omni(insecure_no_token=...)` has no effect: nobody is let in"
        )
    caplog.clear()
    assert plan_of(plan, PlanInputs(model="")) is plan
    assert caplog.messages == []
