"""Every profile that ships, exported and fed back, gives the plan that it gives itself."""

from __future__ import annotations

from typing import Final

import pytest

from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.make import make
from stagemesh.plan.values import Plan
from tests.models.shipping import CATALOG, FIXTURES
from tests.models.test_shipped import SHIPPED
from tests.plan.export.feeding_back import HOST, decisions, exported, fed_back

DIFFUSERS: Final = sorted(each.name for each in (FIXTURES / "diffusers").iterdir())
PROFILES: Final[dict[str, PlanInputs]] = {
    **{
        name: PlanInputs(model=str(FIXTURES / checkpoint), deploy_config=name, devices=devices)
        for name, (checkpoint, devices) in SHIPPED.items()
    },
    **{
        name: PlanInputs(model=str(FIXTURES / "diffusers" / name), devices="8xH200")
        for name in DIFFUSERS
    },
    "voice_chat": PlanInputs(model=str(FIXTURES / "voice_chat"), devices="2xH200"),
}
"""Every deploy file that ships, with a checkpoint; those of `diffusers` with each family."""
TOLD: Final = {"voice_chat": ("- `pipeline: voice_chat`: a pipeline of stagemesh",)}
"""What a profile says that vllm-omni has no word for."""


def planned(asked: PlanInputs) -> Plan:
    """Plan what must be well."""
    made = make(asked, HOST, CATALOG)
    assert made.plan is not None, made.diagnostics
    return made.plan


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_comes_back_as_it_was(name: str) -> None:
    """With the flags in the file, and without a warning."""
    asked = PROFILES[name]
    plan = planned(asked)
    for form in ("yaml", "vllm-omni"):
        said = exported(plan, CATALOG, form)
        again = fed_back(said, asked, CATALOG)
        assert again.diagnostics == ()
        assert again.plan is not None
        assert decisions(again.plan) == decisions(plan)
    assert said.unsaid == TOLD.get(name, ())


def test_a_checkpoint_in_several_stages_is_told() -> None:
    """That system has one stage for it; the file still leads back here."""
    model = str(FIXTURES / "diffusers" / "flux")
    asked = PlanInputs(model=model, deploy_config={"pipeline": "flux_split"}, devices="4xH200")
    plan = planned(asked)
    said = exported(plan, CATALOG, "vllm-omni")
    assert said.unsaid == ("- `pipeline: flux_split`: it runs such a checkpoint as one stage",)
    again = fed_back(said, asked, CATALOG)
    assert again.plan is not None
    assert decisions(again.plan) == decisions(plan)
