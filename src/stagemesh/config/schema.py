"""The keys of strategy and deploy files.

Each dataclass is the schema of one mapping; docs and JSON Schema follow from its annotations and
from the text under each field. The stage fields that axes and engines declare are not listed here:
`fields.py` adds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias

from stagemesh.config.check import Pattern
from stagemesh.config.variables import VariableName, VariableValue
from stagemesh.spec.axis import Owner
from stagemesh.spec.bounds import Range


def _as_device_list(value: object) -> str | None:
    items = value if isinstance(value, list | tuple) else (value,)
    if items and all(type(item) is int and item >= 0 for item in items):
        return f'write `"{",".join(map(str, items))}"`'
    return None


DeviceList: TypeAlias = Annotated[
    str,
    Pattern(regex=" *[0-9]+ *(, *[0-9]+ *)*", example="0,1", rewrite=_as_device_list),
]
"""Logical device ids."""

Size: TypeAlias = Annotated[int, Range(minimum=1)]
"""The degree of an axis."""

FromStage: TypeAlias = Annotated[str, Pattern(regex="from_stage_[0-9]+", example="from_stage_0")]
"""Names an incoming edge."""

ToStage: TypeAlias = Annotated[str, Pattern(regex="to_stage_[0-9]+", example="to_stage_1")]
"""Names an outgoing edge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorEntry:
    """One named connector."""

    name: str
    """Class of the connector, such as `SharedMemoryConnector`."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Options of that class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployFile:
    """How the stages of a pipeline run."""

    async_chunk: bool = True
    """Hand outputs to the next stage in chunks as they appear, rather than whole."""
    pipeline: str | None = None
    """Name of the pipeline, when the checkpoint's own configuration should not choose it."""
    connectors: Mapping[str, ConnectorEntry] = field(default_factory=dict)
    """Connectors by the names that stages refer to."""
    stages: tuple[Mapping[str, object], ...] = ()
    """Settings of stages, each named by its `stage_id`; stages left out run with defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEntry:
    """Settings of one stage; axes and engines add further keys."""

    stage_id: int
    """Number of the stage in the pipeline."""
    engine: str = "auto"
    """Name of the engine; `auto` takes the default of the stage's kind."""
    devices: DeviceList | None = None
    """Logical device ids of the stage, such as `"0,1"`; placed automatically when left out."""
    env: Mapping[VariableName, VariableValue] = field(default_factory=dict)
    """Environment variables added to the stage's processes."""
    default_sampling_params: Mapping[str, object] = field(default_factory=dict)
    """Request parameters that hold when a request does not give them."""
    additional_config: Mapping[str, object] = field(default_factory=dict)
    """Options of the model for this stage."""
    input_connectors: Mapping[FromStage, str] = field(default_factory=dict)
    """Named connector of each incoming edge."""
    output_connectors: Mapping[ToStage, str] = field(default_factory=dict)
    """Named connector of each outgoing edge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyEntry:
    """One axis of one stage; some axes add further keys."""

    axis: str
    """Name of the axis."""
    size: Size
    """Its degree."""
    routing: str | None = None
    """How requests are spread, for axes that let one choose."""
    l1_owner: Owner | None = None
    """Who carries the routing out; it can only repeat what the axis says."""
    name: str | None = None
    """Label in messages and plans; the name of the axis when left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyFile:
    """Parallel axes laid over stages."""

    strategies: Mapping[str, tuple[StrategyEntry, ...]]
    """Axes of each stage, by the stage's name."""


STAGE_KEY: Final = "stage_id"
"""The key that names the stage of an entry; it is no setting."""
