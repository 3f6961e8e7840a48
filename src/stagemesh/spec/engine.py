"""The contract of an engine: a synchronous stepper that a stage process drives.

The declaration (`EngineSpec`, exported as `ENGINE` by `engines/<name>.py`) is free of torch; its
`factory` is a reference that only a running stage resolves.

Life of a request: `add`, then inputs by `append` (the last one with `last=True`), then outputs
from `step` until one has `finish` or `error`. After `cancel` no further output of that request
appears. `has_work` is false while every request is finished, paused or waits for input, so nothing
ever spins. `step` may block for one model step, never for work. Inputs come when `wants_input` says
that a request can do nothing more with those it has: whoever sends them does not run ahead. A
request that waits for input must not keep others, which have some, from going on.

Where the runtime owns the ranks of a replica, each of them holds an engine, and all are asked the
same in the same order: `add`, `append`, `pause`, `resume`, `cancel`, `open_session` and
`close_session` when rank 0 has been, `load`, `step` and `call` at once, so that collectives belong
into these three alone. Outputs are taken from rank 0. What raises in `load` or `step`, or in `call`
but for `KeyError`, ends the replica, because others may wait for ever; so does what raises at one
rank and not at another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import Enum
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from stagemesh.spec.axis import Finding
from stagemesh.spec.cost import Forward, Part, Pieces
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.frozen import frozen
from stagemesh.spec.payload import MetaValue, Payload
from stagemesh.spec.pipeline import ExecutionType, NoOptions


class Finish(Enum):
    """Why a request of an engine ended well."""

    STOP = "stop"
    """It said everything."""
    LENGTH = "length"
    """It reached the length it was allowed."""


class FaultKind(Enum):
    """Whose fault a failed request is."""

    INVALID_REQUEST = "invalid_request"
    """The request cannot be served; trying again will not help."""
    INTERNAL = "internal"
    """The engine failed."""


@frozen
class EngineFault:
    """Why one request failed in an engine."""

    kind: FaultKind
    """Whose fault it is."""
    message: str
    """What happened, for the user."""


@frozen
class EngineRequest:
    """A request as an engine sees it; its inputs come by `append`."""

    request_id: str
    """Unique among the engine's live requests."""
    params: Mapping[str, object] = field(default_factory=dict)
    """Request parameters, checked against the engine's and the stage's parameter types."""
    session: str | None = None
    """The open session that it is a turn of, where it is one."""


@frozen
class EngineOutput:
    """What one step gave for one request."""

    request_id: str
    """The request."""
    payloads: tuple[Payload, ...] = ()
    """Outputs in order, owned by the receiver."""
    finish: Finish | None = None
    """Set on the last output of a request that ended well; such an output may be empty."""
    error: EngineFault | None = None
    """Set on the last output of a request that failed."""
    units: Mapping[str, float] = field(default_factory=dict)
    """Amounts to add to the report, such as `{"tokens": 1}` or `{"audio_s": 0.37}`."""


@frozen
class Rendezvous:
    """Where the ranks of one replica find each other, to set up their collectives."""

    address: str
    """Address of rank 0."""
    port: int
    """Port at which rank 0 listens."""
    listener: int | None = None
    """At rank 0, the descriptor of the socket that listens already; the engine's to close."""


@frozen
class EngineContext:
    """All that an engine is given to load one rank of one replica of a stage."""

    stage: str
    """Name of the stage."""
    checkpoint: Path
    """Folder of the whole model."""
    model_subdir: str
    """Folder of the stage's weights inside it."""
    loader: str | None
    """Reference of the network's loader, or `None`."""
    device: str
    """Device of this rank, such as `cpu` or `cuda:0`."""
    rank: int
    """This rank."""
    world_size: int
    """Ranks of the replica."""
    async_chunk: bool
    """Whether outputs are wanted as early as possible rather than whole."""
    owns_tokenizer: bool
    """Whether the engine turns text into tokens and back."""
    args: object
    """Engine arguments: an instance of the declaration's `options`."""
    model_args: object
    """The stage's `additional_config`: an instance of the pipeline's `options` for it."""
    model_params: type
    """Dataclass of the request parameters that the network adds to the engine's own."""
    groups: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    """Ranks of every group of each axis, by name; axes without ranks have none."""
    rendezvous: Rendezvous | None = None
    """Where the ranks meet, when the runtime has started more than one."""
    max_sessions: int = 0
    """Full-duplex sessions that it has to keep at a time; 0 where requests take turns."""

    @property
    def folder(self) -> Path:
        """Folder of the stage's weights."""
        return self.checkpoint / self.model_subdir


class Engine(Protocol):
    """The running half of an engine."""

    def load(self) -> None:
        """Load weights and be ready to step; raising fails the start of the stage."""
        ...

    def add(self, request: EngineRequest) -> None:
        """Take a request; a parameter it cannot use becomes an output with `error`."""
        ...

    def append(self, request_id: str, payload: Payload, *, last: bool) -> None:
        """Give one input; unknown requests are ignored (and the payload released).

        The payload is borrowed: the engine releases it when it has copied what it keeps.
        """
        ...

    def wants_input(self, request_id: str) -> bool:
        """Whether a request can do nothing more with the inputs that it was given.

        One that does nothing before its last input wants all; so do failed and unknown ones.
        """
        ...

    def step(self) -> list[EngineOutput]:
        """Run one step for the requests that can go on."""
        ...

    def pause(self, request_id: str) -> None:
        """Make no further output for a request until `resume`; unknown requests are ignored."""
        ...

    def resume(self, request_id: str) -> None:
        """Go on with a paused request; unknown requests are ignored."""
        ...

    def cancel(self, request_id: str) -> None:
        """Forget a request and free what it holds; unknown requests are ignored."""
        ...

    def call(self, name: str, args: Mapping[str, MetaValue]) -> Mapping[str, MetaValue]:
        """Run a control action of the engine's own list; raises `KeyError` for any other name."""
        ...

    def has_work(self) -> bool:
        """Whether `step` would make progress now."""
        ...

    def close(self) -> None:
        """Free everything; calling it again does nothing."""
        ...


class SessionEngine(Engine, Protocol):
    """An engine whose declaration says `keeps_sessions`: it keeps something from turn to turn.

    Turns of a session come one after another, each once the one before it has ended. Those of
    different sessions run beside one another, and know nothing of each other.
    """

    def open_session(self, session: str) -> None:
        """Keep state for a session; raising fails its opening, and nothing is kept then."""
        ...

    def close_session(self, session: str) -> None:
        """Forget a session whose turns have ended; unknown ones are ignored.

        When it raises, it is asked again later: until then the session counts as kept.
        """
        ...


_CPU: Final = "cpu"
_CONTEXT_BYTES: Final = 2**30
"""Kernels, workspaces and collective buffers of an accelerator's libraries, for one process."""


@frozen
class MemoryInput:
    """What a memory model is given."""

    facts: StageFacts
    """Facts of the stage."""
    sizes: Mapping[str, int]
    """Axis sizes."""
    args: object
    """Engine arguments: an instance of the declaration's `options`."""
    device_kind: str
    """Kind of the devices: `cpu`, `cuda`, or the name of an imaginary one."""
    stage_args: Mapping[str, object] = field(default_factory=dict)
    """Given fields of the stage's kind that are no arguments of the engine."""
    params: Mapping[str, object] = field(default_factory=dict)
    """Request parameters that hold where a request does not say others."""
    device_memory_bytes: int | None = None
    """Bytes of one device, when they are known."""
    pieces: Pieces = field(default_factory=dict)
    """What the axes of the stage together cut."""
    buffer_bytes: int = 0
    """Bytes that the axes need for sending; the engine counts them to its workspace."""

    def cut(self, part: Part) -> int:
        """Into how many pieces `part` is cut."""
        return self.pieces.get(part, 1)

    @property
    def context_bytes(self) -> int:
        """What the libraries of the device take in every process: nothing on a CPU."""
        return 0 if self.device_kind == _CPU else _CONTEXT_BYTES


@frozen
class MemoryEstimate:
    """Bytes that one rank of a stage is expected to hold."""

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


MemoryModel: TypeAlias = Callable[[MemoryInput], MemoryEstimate | None]
"""Estimates a rank's memory; `None` when a fact is missing."""


def _unknown_memory(_given: MemoryInput) -> MemoryEstimate | None:
    return None


ForwardModel: TypeAlias = Callable[[MemoryInput], Forward | None]
"""Describes one run of the network; `None` when a fact is missing."""


@frozen
class Scaled:
    """What a checkpoint says, for the size and number of results that a stage is asked for."""

    facts: StageFacts
    """Facts of all that is computed together, where amounts depend on that."""
    uncounted: tuple[str, ...] = ()
    """Given fields and request parameters that change what is held, in a way that is unknown."""


ScaleModel: TypeAlias = Callable[[MemoryInput], Scaled]
"""Turns facts about one result of the model's own size into those of what is asked for."""


def _as_it_is(given: MemoryInput) -> Scaled:
    return Scaled(facts=given.facts)


EngineCheck: TypeAlias = Callable[[MemoryInput], Iterable[Finding]]
"""What an engine has against its arguments, given what the checkpoint says."""


def _no_findings(_given: MemoryInput) -> Iterable[Finding]:
    return ()


@frozen
class EngineSpec:
    """The declaration of an engine."""

    name: str
    """Name in deploy files; the file's name."""
    summary: str
    """One line for listings."""
    runs: frozenset[ExecutionType]
    """Stage kinds that it runs."""
    default_for: frozenset[ExecutionType] = frozenset()
    """Stage kinds for which `engine: auto` means this one."""
    executes: frozenset[str] = frozenset()
    """Axes that it executes itself; others make a plan valid but not runnable."""
    keeps_sessions: bool = False
    """Whether it is a `SessionEngine`: full-duplex sessions run on no other."""
    owns_ranks: bool = False
    """Whether the engine starts its further ranks itself, rather than the runtime."""
    options: type = NoOptions
    """Dataclass of the stage fields that are its arguments."""
    params: type = NoOptions
    """Dataclass of the request parameters that it takes."""
    scale: ScaleModel = _as_it_is
    """How facts grow with what a request asks for; all else is given what comes of it."""
    sized_by: frozenset[str] = frozenset()
    """Request parameters that decide what all stages hold which a request passes."""
    memory: MemoryModel = _unknown_memory
    """Its memory model."""
    forward: ForwardModel | None = None
    """One run of the network, for traffic and speed; `None` where nothing is said about them."""
    check: EngineCheck = _no_findings
    """Its rules over arguments and facts."""
    needs_weights: bool = False
    """Whether it loads weight files, so that a checkpoint without them cannot be run."""
    factory: str | None = None
    """Reference of a function `(EngineContext) -> Engine`; `None` when it only plans yet."""
    planning_only: str | None = None
    """Why it can be planned but not run yet, or `None` when it runs."""
