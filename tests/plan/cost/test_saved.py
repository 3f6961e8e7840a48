"""A saved plan gives the same memory and traffic when it is planned again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.make import make
from stagemesh.plan.save import to_json
from stagemesh.plan.saved import open_saved

FIXTURES: Final = Path(__file__).parents[2] / "fixtures"
HOST: Final = Host(kind="cpu", count=None, memory_bytes=512 * 2**30)


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("qwen3_omni_moe", {}),
        ("qwen3_omni_moe", {"devices": "8xH200"}),
        (
            "qwen3_omni_moe",
            {"devices": 4, "stage_overrides": {"thinker": {"tp": 2, "devices": "0,2"}}},
        ),
        ("diffusers/qwen_image", {"devices": "8xH100", "set_values": ("dit.sp_ring=4",)}),
        (
            "diffusers/wan2_2",
            {
                "devices": "8xH100",
                "set_values": ("dit.sp_ulysses=4", "dit.use_hsdp=true", "dit.cfg=2"),
            },
        ),
    ],
)
def test_nothing_comes_out_differently(model: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """Whatever devices it was made for."""
    made = make(PlanInputs(model=str(FIXTURES / model), **changes), HOST)
    assert made.plan is not None, made.diagnostics
    assert any(stage.memory is not None for stage in made.plan.stages)
    file = tmp_path / "plan.json"
    file.write_text(to_json(made.plan), encoding="utf-8")
    again = open_saved(file, HOST)
    assert again.diagnostics == ()
    assert again.plan == made.plan
