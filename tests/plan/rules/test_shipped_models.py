"""Model runners on platforms where a shipped model says more than others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.catalog import Catalog
from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.config.load import load
from stagemesh.plan.build import PlanRequest, PlanResult, build
from stagemesh.plan.devices import Devices, devices_from
from stagemesh.plan.values import CheckpointPlan

HOST: Final = Host(kind="cpu", count=None, memory_bytes=None)
CATALOG: Final = Catalog.installed()


def planned(folder: Path, deploy: object, devices: str) -> PlanResult:
    """Plan a shipped pipeline from a checkpoint that says nothing but its architecture."""
    (folder / "config.json").write_text('{"architectures": ["MossTTSLocalModel"]}', "utf-8")
    file = folder / "deploy.json"
    file.write_text(json.dumps(deploy), encoding="utf-8")
    found = devices_from(devices, HOST)
    assert isinstance(found, Devices)
    loaded = load(PlanInputs(model=str(folder), deploy_config=file), CATALOG, found.platform)
    assert loaded.settings is not None, loaded.diagnostics
    assert loaded.pipeline is not None
    request = PlanRequest(
        pipeline=loaded.pipeline,
        settings=loaded.settings,
        checkpoint=CheckpointPlan(path=str(folder), config_hash=""),
        facts={},
        devices=found,
    )
    return build(request, CATALOG)


@pytest.mark.parametrize(
    ("deploy", "devices", "runner"),
    [
        ("moss_tts_local.yaml", "1xH200", "v2"),
        ("moss_tts_local.yaml", "1xAscend910B", "v1"),
        ("moss_tts_local.yaml", "1xMI300X", "v1"),
        ("moss_tts_local_npu_mrv2.yaml", "1xAscend910B", "v2"),
    ],
)
def test_a_profile_chooses_the_runner_of_a_platform(
    tmp_path: Path, deploy: str, devices: str, runner: str
) -> None:
    """Ascend takes the newer one where the model says so, and nothing is warned of."""
    result = planned(tmp_path, {"base_config": deploy}, devices)
    assert result.diagnostics == ()
    assert result.plan is not None
    assert {stage.setup.runner for stage in result.plan.stages} == {runner}
