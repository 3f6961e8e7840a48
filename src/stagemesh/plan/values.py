"""The plan: everything that was decided, as frozen values that go to JSON and back unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Final, Literal

from stagemesh.config.launch import LaunchOptions
from stagemesh.config.variables import VariableName, VariableValue
from stagemesh.plan.sessions import SessionPlan
from stagemesh.plan.setup import StageSetup
from stagemesh.spec.bounds import Range
from stagemesh.spec.frozen import frozen

PLAN_VERSION: Final = 1
"""Version of the saved form; a plan of another version is refused."""


@frozen
class DevicesPlan:
    """The devices that the plan was made for."""

    kind: str
    """`cpu`, `cuda`, or the name of an imaginary device such as `H200`."""
    count: Annotated[int, Range(minimum=1)]
    """How many there are; ids run from 0."""
    memory_bytes: int | None
    """Bytes of one device; `None` when it is not known, so memory is not checked."""
    imaginary: bool
    """True when they were only assumed, so the plan cannot be run."""
    ids: tuple[str, ...] = ()
    """What the driver calls each of them, such as `7` or `GPU-...`; empty where nothing does."""


@frozen
class RankPlan:
    """One rank of one replica."""

    rank: int
    """Number inside the replica, from 0."""
    device: int
    """Logical device id."""
    coords: Mapping[str, int]
    """Coordinate on every axis that multiplies ranks and is larger than 1."""


@frozen
class ReplicaPlan:
    """One replica of a stage."""

    index: int
    """Number inside the stage, from 0."""
    ranks: tuple[RankPlan, ...]
    """Its ranks in order."""


@frozen
class PatternPlan:
    """A routing or aggregation pattern by name."""

    name: str
    """Class name of the pattern, such as `RouteByStage`."""
    args: Mapping[str, object]
    """Its fields, enums by value."""


@frozen
class BindingPlan:
    """One layer hook or kernel that an axis binds."""

    kind: str
    """`hook` or `kernel`."""
    name: str
    """Its id in the registry."""
    target: str
    """Glob over module paths."""
    category: str
    """When it is bound."""
    priority: int
    """Order within the category."""
    axis: str
    """The axis that binds it."""
    group_axis: str | None = None
    """For a kernel, the axis whose group its collectives run over; the binding axis' own else."""
    requires_collective: bool = False
    """For a kernel, whether it needs that group."""


@frozen
class TrafficPlan:
    """What one axis makes the busiest rank send, by the formulas of its declaration."""

    sent_bytes: int
    """Bytes."""
    collectives: int
    """Collectives."""
    per: Literal["forward", "request"]
    """Whether that is for one run of the network, or once in a request."""
    tokens: int
    """Tokens of one run, before any axis cuts them."""


@frozen
class AxisPlan:
    """One axis of one stage, with its process groups."""

    axis: str
    """Name of the axis."""
    size: int
    """Its degree."""
    label: str
    """The entry's `name`, or the name of the axis."""
    role: str
    """What it does to the ranks: a value of `WorldRole`."""
    groups: tuple[tuple[int, ...], ...]
    """Ranks of each group inside one replica; empty for axes without ranks."""
    routing: PatternPlan
    """How work enters it."""
    aggregation: PatternPlan
    """How results leave it."""
    owner: str
    """`engine` or `delegated`."""
    options: Mapping[str, object]
    """Its further options, defaults filled in."""
    traffic: TrafficPlan | None
    """What its ranks send; `None` where nothing is sent or it cannot be told."""


@frozen
class ValuePlan:
    """Where one value of a stage came from."""

    value: object
    """The value."""
    layer: str
    """Name of the layer in lower case."""
    origin: str
    """The place, as text."""
    is_default: bool = False
    """Whether the model says so itself: its pipeline, or a deploy file that ships with it."""
    superseded: tuple[ValuePlan, ...] = ()
    """Values it replaced, highest first."""
    clears: bool = False
    """Whether it is a `null` that takes back what it replaced, so that the default holds."""


@frozen
class MemoryPlan:
    """Bytes that one rank is expected to hold."""

    weights: int
    """Parameters and buffers."""
    cache: int
    """Key-value cache and other state of requests."""
    workspace: int
    """Activations, buffers, and what the process itself takes."""
    context: int = 0
    """What the libraries of the device take."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.cache + self.workspace + self.context


@frozen
class StagePlan:
    """One stage: what runs it, where, and with which values."""

    stage_id: int
    """Its number in the pipeline."""
    name: str
    """Its name in the pipeline."""
    execution_type: str
    """A value of `ExecutionType`."""
    engine: str
    """Name of the engine, or `none` where no engine runs this kind of stage yet."""
    world_size: int
    """Ranks of one replica."""
    policy: str
    """How requests are spread over the replicas: a value of `Policy`."""
    replicas: tuple[ReplicaPlan, ...]
    """Its replicas in order."""
    axes: tuple[AxisPlan, ...]
    """Declared axes in mesh order, then the others by name."""
    bindings: tuple[BindingPlan, ...]
    """Hooks and kernels in the order they are bound."""
    engine_args: Mapping[str, object]
    """Arguments of the engine, defaults filled in."""
    stage_args: Mapping[str, object]
    """Given fields of the stage's kind on which the engine does not act yet."""
    model_args: Mapping[str, object]
    """`additional_config`, defaults filled in."""
    sampling: Mapping[str, object]
    """Default request parameters, the pipeline's constraints included."""
    env: Mapping[VariableName, VariableValue]
    """Environment added to the stage's processes."""
    memory: MemoryPlan | None
    """Memory of one rank, or `None` when it cannot be estimated."""
    input_sources: tuple[int, ...]
    """Stages that feed it."""
    final_output_type: str | None
    """Modality it hands to the user, or `None`."""
    owns_tokenizer: bool
    """Whether it turns text into tokens and back."""
    model_subdir: str
    """Folder of its weights inside the checkpoint."""
    loader: str | None
    """Reference of its network's loader."""
    values: Mapping[str, ValuePlan]
    """Where each given value came from, by path, such as `axes.tp.size` or `env.NAME`."""
    async_chunk: bool = True
    """Whether it takes part where stages hand over chunks."""
    setup: StageSetup = field(default_factory=StageSetup)
    """How its processes are started and bound, and which kernels it takes."""


@frozen
class EdgePlan:
    """One edge between two stages."""

    source: int
    """Stage that produces."""
    target: int
    """Stage that consumes."""
    connector: str
    """File name of the connector's plug-in."""
    options: Mapping[str, object]
    """Its options, defaults filled in."""
    payload_type: str
    """What the producing engine puts out, such as `text` or `latent`."""
    bridge: str | None
    """Reference of the `BridgeFactory`, or `None` when outputs are inputs as they are."""
    chunked: bool
    """Whether payloads are handed over as they appear rather than whole."""
    model_options: Mapping[str, object] = field(default_factory=dict)
    """What the model can be told about this edge, defaults filled in."""
    window_size: int | None = None
    """Outputs of one request that are handed over together; `-1` for all, `None` for no word."""
    max_inflight: int | None = None
    """Most requests that are on it at a time, between two replicas; `None` for no limit."""


@frozen
class WeightTransferPlan:
    """How new weights reach the stages while they run."""

    backend: str
    """What carries them, such as `nccl`."""
    options: Mapping[str, object]
    """Further options of that."""


@frozen
class CheckpointPlan:
    """The checkpoint that the plan was made for."""

    path: str
    """Its folder, absolute."""
    config_hash: str
    """SHA-256 of its configuration file; running refuses a checkpoint that no longer matches."""


@frozen
class Plan:
    """Everything that was decided before anything starts."""

    version: int = PLAN_VERSION
    """Version of this form."""
    pipeline: str
    """Model type of the pipeline."""
    checkpoint: CheckpointPlan
    """The checkpoint."""
    devices: DevicesPlan
    """The devices."""
    async_chunk: bool
    """Whether stages hand over chunks."""
    stages: tuple[StagePlan, ...]
    """Stages by ascending id."""
    edges: tuple[EdgePlan, ...]
    """Edges by source and target."""
    not_runnable: tuple[str, ...]
    """Why this valid plan cannot be run; empty when it can."""
    skipped_checks: tuple[str, ...]
    """Checks that could not be made because a fact is missing."""
    launch: LaunchOptions = field(default_factory=LaunchOptions)
    """What this start runs of it, and where it finds the others."""
    values: Mapping[str, ValuePlan] = field(default_factory=dict)
    """Where each pipeline-wide value came from, by field name; `launch.` before launch options."""
    session: SessionPlan = field(default_factory=SessionPlan)
    """Turn by turn or full duplex, and the frontends."""
    weight_transfer: WeightTransferPlan | None = None
    """How weights are replaced while it runs; `None` where they are not."""
    active_stream_window: int = 0
    """Streams of chunks that a stage serves at a time, by age; `0` goes round all of them."""
    cuda_mps: bool = False
    """Whether stages that share a device were to do so through CUDA MPS."""

    def stage(self, stage_id: int) -> StagePlan:
        """Return the stage with that id."""
        if stage_id < len(self.stages) and self.stages[stage_id].stage_id == stage_id:
            return self.stages[stage_id]  # the usual order, in which no search is needed
        return next(stage for stage in self.stages if stage.stage_id == stage_id)
