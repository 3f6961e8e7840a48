"""A pipeline with a stage of every kind, and a folder of deploy files to load it with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.host import Host
from stagemesh.config.inputs import ConfigInput, PlanInputs
from stagemesh.config.load import Loaded, load
from stagemesh.config.settings import Sourced
from stagemesh.plan.make import Made, make
from stagemesh.spec.connector import ConnectorSpec, Reach
from stagemesh.spec.engine import EngineSpec
from stagemesh.spec.pipeline import ExecutionType, PipelineConfig, StagePipelineConfig
from stagemesh.spec.registry import AXES
from stagemesh.spec.unset import UNSET, Unset
from tests.config.speech import ConnectorOptions, Options

HOST: Final = Host(kind="cpu", count=None, memory_bytes=2**30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Request parameters of the engine of these tests."""

    temperature: float = 1.0
    """Spread."""
    stop_token_ids: tuple[int, ...] = ()
    """Where it ends."""
    detokenize: bool = True
    """Whether ids become text."""


ENGINE: Final = EngineSpec(
    name="steps",
    summary="an engine for everything",
    runs=frozenset(ExecutionType),
    default_for=frozenset(ExecutionType),
    executes=frozenset({"tp", "dp"}),
    options=Options,
    params=Params,
    factory="nowhere:make",
)
CONNECTOR: Final = ConnectorSpec(
    name="pipe",
    config_names=("PipeConnector",),
    summary="a connector",
    reach=Reach.HOST,
    is_default=True,
    options=ConnectorOptions,
)
PIPELINE: Final = PipelineConfig(
    model_type="show",
    summary="words become sound and pictures",
    default_deploy_config_name="show",
    stages=(
        StagePipelineConfig(
            stage_id=0,
            model_stage="thinker",
            produces_chunks=True,
            sampling_constraints={"stop_token_ids": [151704, 151645], "detokenize": False},
        ),
        StagePipelineConfig(
            stage_id=1, model_stage="talker", input_sources=(0,), produces_chunks=True
        ),
        StagePipelineConfig(
            stage_id=2,
            model_stage="code2wav",
            execution_type=ExecutionType.LLM_GENERATION,
            input_sources=(1,),
            final_output=True,
            final_output_type="audio",
        ),
        StagePipelineConfig(
            stage_id=3,
            model_stage="painter",
            execution_type=ExecutionType.DIFFUSION,
            input_sources=(0,),
            final_output=True,
            final_output_type="image",
        ),
    ),
)
CATALOG: Final = Catalog(
    axes={axis.name: axis for axis in AXES.declarations()},
    engines={"steps": ENGINE},
    connectors=dict.fromkeys(CONNECTOR.config_names, CONNECTOR),
    models=(Model(pipeline=PIPELINE, package="tests.config.shows"),),
)


class Show:
    """A folder with a checkpoint and deploy files; it is the current one."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make the checkpoint."""
        monkeypatch.chdir(folder)
        self.folder = folder
        (folder / "model").mkdir()
        config = json.dumps({"model_type": "show"})
        (folder / "model" / "config.json").write_text(config, encoding="utf-8")

    def write(self, files: Mapping[str, str]) -> None:
        """Write files by their path from the folder."""
        for name, text in files.items():
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    def load(
        self,
        deploy: ConfigInput | Unset = "deploy.yaml",
        *,
        platform: str | None = None,
        catalog: Catalog = CATALOG,
        **inputs: object,
    ) -> Loaded:
        """Load the checkpoint with a deploy file."""
        return load(self._inputs(deploy, inputs), catalog, platform)

    def make(
        self,
        deploy: ConfigInput | Unset = "deploy.yaml",
        *,
        catalog: Catalog = CATALOG,
        **inputs: object,
    ) -> Made:
        """Plan the checkpoint with a deploy file."""
        return make(self._inputs(deploy, inputs), HOST, catalog)

    def _inputs(self, deploy: ConfigInput | Unset, inputs: Mapping[str, object]) -> PlanInputs:
        return PlanInputs(model="model", deploy_config=deploy, **inputs)  # type: ignore[arg-type]


def chain(given: Sourced[object]) -> list[tuple[object, str]]:
    """Show a value and all that it replaced, highest first, each with its place."""
    return [(each.value, str(each.origin)) for each in (given, *given.superseded)]


def said(loaded: Loaded, stage: str, path: str) -> Sourced[object] | Unset:
    """Return what was said about a stage at a path such as `env.NAME` or `axes.dp.size`."""
    assert loaded.settings is not None, loaded.diagnostics
    found = next(each for each in loaded.settings.stages if each.name == stage)
    first, *rest = path.split(".")
    if first == "axes":
        axis = found.axes.get(rest[0])
        return UNSET if axis is None or axis.size is None else axis.size  # type: ignore[return-value]
    given = found.fields.get(first)
    for name in rest:
        given = None if given is None else given.parts.get(name)
    return UNSET if given is None else given


def values(show: Show, path: str, **inputs: object) -> list[object]:
    """Return what was said about each stage; everything must have been well."""
    loaded = show.load(**inputs)  # type: ignore[arg-type]
    assert loaded.diagnostics == ()
    given = [said(loaded, stage.model_stage, path) for stage in PIPELINE.stages]
    return [each if isinstance(each, Unset) else each.value for each in given]
