"""The documented duplex example on the shipped pipeline, and runners where a model says more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.catalog import Catalog
from stagemesh.config.host import Host
from stagemesh.config.inputs import GivenField, PlanInputs
from stagemesh.config.load import load
from stagemesh.plan.build import PlanRequest, PlanResult, build
from stagemesh.plan.devices import Devices, devices_from
from stagemesh.plan.values import CheckpointPlan

HOST: Final = Host(kind="cpu", count=None, memory_bytes=None)
CATALOG: Final = Catalog.installed()


def planned(folder: Path, deploy: object, devices: str, frontends: int = 1) -> PlanResult:
    """Plan a shipped pipeline from a checkpoint that says nothing but its architecture."""
    (folder / "config.json").write_text('{"architectures": ["MossTTSLocalModel"]}', "utf-8")
    file = folder / "deploy.json"
    file.write_text(json.dumps(deploy), encoding="utf-8")
    found = devices_from(devices, HOST)
    assert isinstance(found, Devices)
    flag = GivenField(name="api_server_count", value=frontends, source="--api-server-count")
    inputs = PlanInputs(model=str(folder), deploy_config=file, fields=(flag,))
    loaded = load(inputs, CATALOG, found.platform)
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


def test_the_documented_example_of_several_frontends(tmp_path: Path) -> None:
    """Eight complete groups on eight devices; four frontends with two groups and 16 sessions."""
    everywhere = {"num_replicas": 8, "devices": "0,1,2,3,4,5,6,7"}
    deploy = {
        "base_config": "personaplex.yaml",
        "duplex_session": {
            "max_sessions": 64,
            "replica_policy": "least_sessions",
            "max_sessions_per_replica": 8,
        },
        "stages": [{"stage_id": 0, **everywhere}, {"stage_id": 1, **everywhere}],
    }
    result = planned(tmp_path, deploy, "8xH200", frontends=4)
    assert result.diagnostics == ()
    assert result.plan is not None
    duplex = result.plan.session.duplex
    assert duplex is not None
    assert [frontend.groups for frontend in duplex.frontends] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert {frontend.capacity for frontend in duplex.frontends} == {16}
    assert duplex.worker_sessions == 8
    devices = [
        {replica.ranks[0].device for replica in stage.replicas} for stage in result.plan.stages
    ]
    assert devices == [set(range(8)), set(range(8))]


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
