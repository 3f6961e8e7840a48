"""What a model implements so that the `generation` engine can run it as a stage.

The engine owns scheduling (queues, buckets, batches, pausing); the module owns the network. A
module is single-device code: it gets sessions that are ready and runs one unit of work for each of
them as a batch.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Protocol

from stagemesh.spec.frozen import frozen
from stagemesh.spec.payload import Payload


@frozen
class ModuleOutput:
    """What one unit of work gave."""

    payloads: tuple[Payload, ...] = ()
    """Payloads for the stage's outgoing edges or the caller, in order."""
    done: bool = False
    """True when this session has nothing left to say; no unit follows."""
    units: Mapping[str, float] = field(default_factory=dict)
    """Amounts for the report, such as `{"audio_s": 0.37}` or `{"frames": 32}`."""


class GenerationSession(Protocol):
    """The state of one request inside a module."""

    def push(self, payload: Payload, *, last: bool) -> None:
        """Take one input; copy what is kept, since the payload is released afterwards."""
        ...

    def bucket(self) -> Hashable | None:
        """Return the key of the next unit of work, or `None` while more input is needed.

        Sessions whose keys are equal may be run together.
        """
        ...


class GenerationModule(Protocol):
    """A one-shot network behind the `generation` engine."""

    def open(self, request_id: str, params: object) -> GenerationSession:
        """Start a session; `params` is an instance of the pipeline's `params` for this stage.

        Raises `ValueError` with a sentence for the user when a parameter cannot be used.
        """
        ...

    def run(self, sessions: Sequence[GenerationSession]) -> list[ModuleOutput]:
        """Run one unit of work for every session (all of one bucket); one output per session."""
        ...


@frozen
class ModuleContext:
    """All that a module is given to load."""

    folder: Path
    """Folder of the stage's weights."""
    device: str
    """Device that it computes on, such as `cpu` or `cuda:0`; payloads are in host memory."""
    args: object
    """An instance of the pipeline's `options` for this stage."""
    async_chunk: bool
    """Whether chunks are wanted as early as possible rather than one payload per request."""


class GenerationLoader(Protocol):
    """How a module is made: the pipeline names a function of this shape by reference."""

    def __call__(self, context: ModuleContext) -> GenerationModule:
        """Load the weights onto the device; raising fails the start of the stage."""
        ...
