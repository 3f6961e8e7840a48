"""The `fake` engine: deterministic and programmable, for tests of everything around an engine."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from stagemesh.spec.bounds import Range
from stagemesh.spec.engine import EngineSpec, MemoryEstimate, MemoryInput
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import ExecutionType

FailAt: TypeAlias = Literal["add", "append", "step", "raise", "memory", "exit", "stall", "hang"]
"""Where a request goes wrong: `add`, `append` and `step` fail it; `raise` makes `step` raise,
`memory` makes it run out of memory, `exit` ends the process, `stall` says nothing more without
having work, and `hang` never comes back from `step`."""
SessionAt: TypeAlias = Literal["open_session", "close_session"]
"""Where a session goes wrong; one that could not be closed can be at the next try."""
KillAt: TypeAlias = Literal["add", "append", "step", "finish", "pause", "resume", "cancel"]
"""Where in the course of a request the process is ended by SIGKILL: in that call, or in the `step`
that would give its next output, or its last one (`finish`)."""


@frozen
class FakeOptions:
    """The program of every request, unless the request has its own."""

    num_outputs: Annotated[int, Range(minimum=0)] | None = None
    """Outputs of a request once its last input is there; `None` echoes every input as it comes."""
    output_bytes: Annotated[int, Range(minimum=0)] = 0
    """Bytes of the buffer `data` of every output that is not an echo; without one at 0."""
    delay_steps: Annotated[int, Range(minimum=0)] = 0
    """Steps without output before each output."""
    fail_at: Literal["load", "load_hang", FailAt] | SessionAt | None = None
    """Where it goes wrong, `load` at once, `load_hang` never being ready; `None` for nowhere."""
    fail_step: Annotated[int, Range(minimum=0)] = 0
    """Outputs that a request has given before something strikes that happens in `step`."""
    kill_at: (
        Literal["construct", "load", "loaded", "close", "closed", KillAt] | SessionAt | None
    ) = None
    """Where the process is ended by SIGKILL; `None` for nowhere."""
    at_rank: Annotated[int, Range(minimum=0)] | None = None
    """The only rank at which `fail_at` and `kill_at` strike; `None` for all of them."""
    max_num_seqs: Annotated[int, Range(minimum=1)] = 64
    """Requests that one step serves."""
    step_s: Annotated[float, Range(minimum=0)] = 0.0
    """Seconds that a step takes, as one on an accelerator does while the processor waits for it."""
    memory_bytes: Annotated[int, Range(minimum=0)] = 0
    """Bytes that the plan counts for one rank."""


@frozen
class FakeParams:
    """The program of one request; `None` leaves the value to the options of the stage."""

    num_outputs: Annotated[int, Range(minimum=0)] | None = None
    """Outputs of this request once its last input is there."""
    output_bytes: Annotated[int, Range(minimum=0)] | None = None
    """Bytes of the buffer `data` of every output that is not an echo."""
    delay_steps: Annotated[int, Range(minimum=0)] | None = None
    """Steps without output before each output."""
    fail_at: FailAt | None = None
    """Where it goes wrong."""
    fail_step: Annotated[int, Range(minimum=0)] | None = None
    """Outputs that it has given before something strikes that happens in `step`."""
    kill_at: KillAt | None = None
    """Where the process is ended by SIGKILL."""
    at_rank: Annotated[int, Range(minimum=0)] | None = None
    """The only rank at which these two strike."""


def _memory(given: MemoryInput) -> MemoryEstimate | None:
    assert isinstance(given.args, FakeOptions)
    return MemoryEstimate(weights=given.args.memory_bytes, cache=0, workspace=0)


ENGINE: Final = EngineSpec(
    name="fake",
    summary="deterministic engine with a programmable course, for tests",
    runs=frozenset(ExecutionType),
    executes=frozenset({"tp"}),
    keeps_sessions=True,
    options=FakeOptions,
    params=FakeParams,
    memory=_memory,
    factory="stagemesh.engines._fake:fake_engine",
)
