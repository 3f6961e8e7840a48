"""The published checkpoints of `tests/fixtures/diffusers`, and reading them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs
from stagemesh.models.diffusers.pipeline import PIPELINES
from stagemesh.plan.make import Made, make
from stagemesh.plan.values import Plan
from stagemesh.spec.facts import StageFacts, WeightFiles
from stagemesh.spec.pipeline import JsonObject, PipelineConfig
from stagemesh.testing.configs import MemoryConfigs

FIXTURES: Final = Path(__file__).parents[2] / "fixtures" / "diffusers"
HOST: Final = Host(kind="cpu", count=None, memory_bytes=96 * 2**30)
BY_NAME: Final[Mapping[str, PipelineConfig]] = {each.model_type: each for each in PIPELINES}
UNKNOWN: Final = "unknown"
"""A fixture of a class that no family names."""
FAMILIES: Final = tuple(
    sorted(folder.name for folder in FIXTURES.iterdir() if folder.name != UNKNOWN)
)


def files_of(name: str) -> dict[str, JsonObject]:
    """The configuration files of a fixture by folder, `.` for the root."""
    folder = FIXTURES / name
    found = {".": json.loads((folder / "model_index.json").read_text(encoding="utf-8"))}
    for file in folder.glob("*/config.json"):
        found[file.parent.name] = json.loads(file.read_text(encoding="utf-8"))
    return found


def changed(
    name: str,
    values: Mapping[str, object] | None = None,
    weights: Mapping[str, WeightFiles] | None = None,
) -> MemoryConfigs:
    """A fixture with some values replaced: `component.key`, or `key` at the root."""
    files: dict[str, dict[str, object]] = {
        folder: dict(content) for folder, content in files_of(name).items()
    }
    for path, value in (values or {}).items():
        folder, _, key = path.partition(".")
        files[folder if key else "."][key or path] = value
    return MemoryConfigs(files=files, weight_files=weights or {})


def facts_of(configs: MemoryConfigs, pipeline: str) -> Mapping[str, StageFacts]:
    """Read the facts of every stage as a pipeline does."""
    read = BY_NAME[pipeline].facts
    assert read is not None
    return read(configs)


def dit(configs: MemoryConfigs) -> StageFacts:
    """Facts of a checkpoint in one stage."""
    return facts_of(configs, "diffusers")["dit"]


def copy_of(name: str, folder: Path) -> Path:
    """Copy a fixture to change its files."""
    return Path(shutil.copytree(FIXTURES / name, folder / name))


def edit(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a JSON file in place."""
    content = json.loads(file.read_text(encoding="utf-8"))
    change(content)
    file.write_text(json.dumps(content), encoding="utf-8")


def attempt(
    model: Path,
    strategy: Mapping[str, object] | None = None,
    deploy: Mapping[str, object] | None = None,
) -> Made:
    """Plan a checkpoint for eight large devices."""
    return make(
        PlanInputs(
            model=str(model),
            deploy_config=deploy or {},
            strategy_config={"strategies": strategy or {}},
            devices="8xH200",
        ),
        HOST,
    )


def planned(
    model: Path,
    strategy: Mapping[str, object] | None = None,
    deploy: Mapping[str, object] | None = None,
) -> Plan:
    """Plan what must succeed."""
    made = attempt(model, strategy, deploy)
    assert made.plan is not None, made.diagnostics
    assert made.diagnostics == ()
    return made.plan


def told(made: Made) -> list[str]:
    """Show each finding as `code: message`."""
    return [f"{found.code}: {found.message}" for found in made.diagnostics]
