"""The keys of strategy and deploy files.

Each dataclass is the schema of one mapping; docs and JSON Schema follow from its annotations and
from the text under each field. The stage fields of kinds, axes and engines are not listed here:
`fields.py` adds them, also those that the root of a deploy file may give for every stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Final, Literal, TypeAlias, get_args

from stagemesh.config.check import Pattern
from stagemesh.config.kind_fields import Amount, Count, ModelRunner
from stagemesh.config.schema_duplex import DuplexSession
from stagemesh.config.variables import VariableName, VariableValue
from stagemesh.spec.axis import Owner
from stagemesh.spec.bounds import Range
from stagemesh.spec.frozen import frozen
from stagemesh.spec.hooks import KernelSpec, LayerHookSpec


def device_ids_text(value: object) -> str | None:
    """Return the text for ids that were given as numbers; `None` where they are none."""
    items = value if isinstance(value, list | tuple) else (value,)
    if items and all(type(item) is int and item >= 0 for item in items):
        return ",".join(map(str, items))
    return None


def _as_device_list(value: object) -> str | None:
    text = device_ids_text(value)
    return None if text is None else f'write `"{text}"`'


DeviceList: TypeAlias = Annotated[
    str,
    Pattern(regex=" *[0-9]+ *(, *[0-9]+ *)*", example="0,1", rewrite=_as_device_list),
]
"""Logical device ids."""

AUTO: Final = "auto"
"""Name that stands for the engine that a stage gets by its kind."""

Size: TypeAlias = Annotated[int, Range(minimum=1)]
"""The degree of an axis."""

FromStage: TypeAlias = Annotated[str, Pattern(regex="from_stage_[0-9]+", example="from_stage_0")]
"""Names an incoming edge."""

ToStage: TypeAlias = Annotated[str, Pattern(regex="to_stage_[0-9]+", example="to_stage_1")]
"""Names an outgoing edge."""


@frozen
class ConnectorEntry:
    """One named connector."""

    name: str
    """Class of the connector, such as `SharedMemoryConnector`."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Options of that class."""


Platform: TypeAlias = Literal["cuda", "rocm", "npu", "xpu", "musa", "cpu"]
"""A kind of device that a deploy file can have a section for."""

PLATFORMS: Final[tuple[str, ...]] = get_args(Platform)
"""All of them."""


@frozen
class EdgeEntry:
    """What is said about one edge, besides `from` and `to`, which name its stages."""

    connector: str | None = None
    """Named connector that carries the edge."""
    window_size: Annotated[int, Range(minimum=1, also=-1)] | None = None
    """Outputs of one request that are handed over together; `-1` hands over all at its end."""
    max_inflight: Count | None = None
    """Most requests that are on the edge at a time, from a replica to another one."""


EDGE_ENDS: Final[Mapping[str, str]] = {
    "from": "Stage that produces, by number or name.",
    "to": "Stage that consumes, by number or name.",
}
"""The two keys of an edge that no Python field can be called after, with their text."""


@frozen
class PlatformSection:
    """What holds on devices of one kind only."""

    stages: tuple[Mapping[str, object], ...] = ()
    """Settings of stages there, each named by its `stage_id`, on top of all others of the file."""
    model_runner: ModelRunner | None = None
    """Generation of the model runner there, for every stage that no file gives its own."""
    cuda_mps: bool = False
    """Whether stages that share a device run under CUDA MPS there."""


@frozen
class DeployFile:
    """How the stages of a pipeline run."""

    base_config: str | None = None
    """Deploy file below this one: a path from here, or the name of one that ships with a model."""
    async_chunk: bool = True
    """Hand outputs to the next stage in chunks as they appear, rather than whole."""
    session_mode: Literal["turn", "duplex"] | None = None
    """Whether sessions take turns or speak both ways at once; the pipeline's own when left out."""
    active_stream_window: Amount = 0
    """Streams of chunks that a stage serves at a time, by age; `0` goes round all of them."""
    duplex_session: DuplexSession = field(default_factory=DuplexSession)
    """Life, limits and placement of full-duplex sessions."""
    pipeline: str | None = None
    """Name of the pipeline, when the checkpoint's own configuration should not choose it."""
    connectors: Mapping[str, ConnectorEntry] = field(default_factory=dict)
    """Connectors by the names that stages refer to."""
    edges: tuple[EdgeEntry, ...] = ()
    """Settings of edges between stages; which edges there are is the pipeline's affair."""
    stages: tuple[Mapping[str, object], ...] = ()
    """Settings of stages, each named by its `stage_id`; stages left out run with defaults."""
    platforms: Mapping[Platform, PlatformSection] = field(default_factory=dict)
    """What holds on devices of one kind only."""
    weight_transfer_config: Mapping[str, object] | None = None
    """How new weights reach running stages."""
    cuda_mps: bool = False
    """Whether stages that share a device run under CUDA MPS."""


@frozen
class StageEntry:
    """Settings of one stage; axes and engines add further keys."""

    stage_id: Amount
    """Number of the stage in the pipeline."""
    engine: str = AUTO
    """Name of the engine; `auto` takes the default of the stage's kind."""
    async_chunk: bool = True
    """Whether chunks are handed over on the edges of this stage; both ends must say the same."""
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
    engine_extras: Mapping[str, object] = field(default_factory=dict)
    """Further options of the engine; the same field written directly in the entry wins."""


@frozen
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
    layer_hook_specs: tuple[LayerHookSpec, ...] | None = None
    """Hooks to bind onto layers, besides those of the axis."""
    kernel_specs: tuple[KernelSpec, ...] | None = None
    """Kernels to bind onto layers, besides those of the axis."""


@frozen
class StrategyFile:
    """Parallel axes laid over stages."""

    strategies: Mapping[str, tuple[StrategyEntry, ...]]
    """Axes of each stage, by the stage's name."""


STAGE_KEY: Final = "stage_id"
"""The key that names the stage of an entry; it is no setting."""
