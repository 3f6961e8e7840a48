"""A three-stage pipeline with an engine and a connector of its own, for the tests of this room."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.inputs import ConfigInput, GivenField, PlanInputs
from stagemesh.config.load import Loaded, load
from stagemesh.config.settings import AxisSettings, StageSettings
from stagemesh.spec.bounds import Range
from stagemesh.spec.connector import ConnectorSpec, Reach
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.engine import EngineSpec
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import (
    CheckpointConfigs,
    ExecutionType,
    PipelineConfig,
    StagePipelineConfig,
)
from stagemesh.spec.registry import AXES
from stagemesh.spec.unset import UNSET, Unset


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """An option that is a mapping itself."""

    level: int
    """How much."""
    note: str = ""
    """Why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the engine of these tests takes."""

    max_num_seqs: Annotated[int, Range(minimum=1)] = 4
    """Requests at once."""
    share: Annotated[float, Range(minimum=0, maximum=1)] = 0.5
    """Part of the memory."""
    tuning: Tuning | None = None
    """Nested values."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Free values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorOptions:
    """What the connector of these tests takes."""

    slots: Annotated[int, Range(minimum=1)] = 2
    """Payloads in flight."""


ENGINE: Final = EngineSpec(
    name="steps",
    summary="an engine",
    runs=frozenset(ExecutionType),
    options=Options,
    factory="nowhere:make",
)
CONNECTOR: Final = ConnectorSpec(
    name="pipe",
    config_names=("PipeConnector", "Pipe"),
    summary="a connector",
    reach=Reach.HOST,
    options=ConnectorOptions,
    sender="nowhere:sender",
    receiver="nowhere:receiver",
)


def read_facts(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
    """Trust the file, as a careless model would."""
    thinker = configs.root["thinker"]
    assert isinstance(thinker, Mapping)
    return {"thinker": StageFacts(num_layers=thinker["layers"])}


PIPELINE: Final = PipelineConfig(
    model_type="speech",
    summary="three stages",
    default_deploy_config_name="speech",
    hf_architectures=("SpeechModel",),
    checkpoint_recipe="nowhere:assemble",
    stages=(
        StagePipelineConfig(stage_id=0, model_stage="thinker", model_subdir="thinker"),
        StagePipelineConfig(stage_id=1, model_stage="talker", input_sources=(0,)),
        StagePipelineConfig(
            stage_id=2,
            model_stage="code2wav",
            input_sources=(1,),
            final_output=True,
            final_output_type="audio",
        ),
    ),
)
CATALOG: Final = Catalog(
    axes={axis.name: axis for axis in AXES.declarations()},
    engines={"steps": ENGINE},
    connectors=dict.fromkeys(CONNECTOR.config_names, CONNECTOR),
    models=(Model(pipeline=PIPELINE, package="tests.config.shipped"),),
)


class Speech:
    """A folder with a checkpoint, to which files are added and which is then loaded."""

    def __init__(self, folder: Path) -> None:
        """Make the checkpoint."""
        self.folder = folder
        self.checkpoint = folder / "model"
        self.checkpoint.mkdir()
        self.configure({"model_type": "speech"})

    def configure(self, config: object) -> None:
        """Write the checkpoint's `config.json`."""
        (self.checkpoint / "config.json").write_text(json.dumps(config), encoding="utf-8")

    def load(
        self,
        *,
        strategy: ConfigInput | Unset = UNSET,
        deploy: ConfigInput | Unset = "{}",
        overrides: str | Mapping[str, object] | Unset = UNSET,
        fields: tuple[GivenField, ...] = (),
        set_values: tuple[str, ...] = (),
        catalog: Catalog = CATALOG,
    ) -> Loaded:
        """Load; text becomes `strategy.yaml` and `deploy.yaml` of the current folder."""
        return load(
            PlanInputs(
                model=str(self.checkpoint),
                strategy_config=self._file("strategy.yaml", strategy),
                deploy_config=self._file("deploy.yaml", deploy),
                stage_overrides=overrides,
                fields=fields,
                set_values=set_values,
            ),
            catalog,
        )

    def _file(self, name: str, given: ConfigInput | Unset) -> ConfigInput | Unset:
        if not isinstance(given, str):
            return given
        (self.folder / name).write_text(given, encoding="utf-8")
        return name


def flag(name: str, value: object, source: str | None = None) -> GivenField:
    """Say a field for all stages: words as they are typed, or a boolean for a switch."""
    words = (value,) if isinstance(value, str) else value
    source = f"--{name.replace('_', '-')}" if source is None else source
    return GivenField(name=name, value=words, source=source, is_typed=True)


def told(loaded: Loaded) -> list[str]:
    """Show each finding as `code place: message`."""
    return [shown(found) for found in loaded.diagnostics]


def shown(found: Diagnostic) -> str:
    """Show a finding as `code place: message`."""
    return f"{found.code} {found.origin}: {found.message}"


def stage(loaded: Loaded, name: str) -> StageSettings:
    """Return the settings of a stage; everything must have been well."""
    assert loaded.settings is not None, told(loaded)
    return next(stage for stage in loaded.settings.stages if stage.name == name)


def value(loaded: Loaded, name: str, field_name: str) -> object:
    """Return the value of a stage field, or `UNSET` when nothing was said."""
    given = stage(loaded, name).fields.get(field_name)
    return UNSET if given is None else given.value


def size(loaded: Loaded, name: str, axis: str) -> object:
    """Return the size of an axis, or `UNSET` when it is not on."""
    settings: AxisSettings | None = stage(loaded, name).axes.get(axis)
    if settings is None:
        return UNSET
    return None if settings.size is None else settings.size.value
