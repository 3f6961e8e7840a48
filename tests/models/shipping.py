"""Plans of the models that ship, made from small checkpoints with their public numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.host import Host
from stagemesh.config.inputs import ConfigInput, PlanInputs, python_fields
from stagemesh.plan.make import Made, make
from stagemesh.plan.values import Plan, StagePlan
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import JsonObject, PipelineConfig
from stagemesh.spec.unset import UNSET, Unset
from stagemesh.testing.configs import MemoryConfigs

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
CATALOG: Final = Catalog.installed()
HOST: Final = Host(kind="cpu", count=None, memory_bytes=2**40)


def config_of(name: str) -> JsonObject:
    """Return the configuration of a checkpoint."""
    found: JsonObject = json.loads((FIXTURES / name / "config.json").read_text(encoding="utf-8"))
    return found


def facts_of(pipeline: PipelineConfig, name: str) -> dict[str, StageFacts]:
    """Read the facts of every stage out of all configurations of a checkpoint."""
    folder = FIXTURES / name
    files = {
        str(path.parent.relative_to(folder)): json.loads(path.read_text(encoding="utf-8"))
        for path in folder.rglob("config.json")
    }
    return facts(pipeline, files)


def facts(pipeline: PipelineConfig, files: Mapping[str, JsonObject]) -> dict[str, StageFacts]:
    """Read the facts of every stage out of configurations by folder."""
    assert pipeline.facts is not None
    return dict(pipeline.facts(MemoryConfigs(files=files)))


def made(
    name: str | Path,
    deploy: ConfigInput | Unset = UNSET,
    devices: str = "8xH200",
    **given: object,
) -> Made:
    """Plan a checkpoint on devices that are assumed; `given` holds for all stages or the start."""
    model = str(name if isinstance(name, Path) else FIXTURES / name)
    inputs = PlanInputs(
        model=model, deploy_config=deploy, devices=devices, fields=python_fields(given)
    )
    return make(inputs, HOST, CATALOG)


def planned(
    name: str | Path,
    deploy: ConfigInput | Unset = UNSET,
    devices: str = "8xH200",
    **given: object,
) -> Plan:
    """Plan what must succeed without a word."""
    result = made(name, deploy, devices, **given)
    assert told(result) == []
    assert result.plan is not None
    return result.plan


def args(stage: StagePlan) -> dict[str, object]:
    """Return the engine arguments of a stage, whoever acts on them."""
    return {**stage.engine_args, **stage.stage_args}


def told(result: Made) -> list[str]:
    """Return code and message of everything that was found."""
    return [f"{found.code}: {found.message}" for found in result.diagnostics]
