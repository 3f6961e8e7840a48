"""The `generation` engine: one-shot networks such as vocoders and encoders, batched by bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from stagemesh.spec.bounds import Range
from stagemesh.spec.engine import EngineSpec, MemoryEstimate, MemoryInput
from stagemesh.spec.pipeline import ExecutionType

_WORKSPACE_BYTES: Final = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions:
    """Arguments of the `generation` engine."""

    max_num_seqs: Annotated[int, Range(minimum=1)] = 8
    """Most requests that one step runs together."""
    num_threads: Annotated[int, Range(minimum=1)] = 1
    """Threads of torch on a CPU device."""


def _memory(given: MemoryInput) -> MemoryEstimate | None:
    if given.facts.weight_bytes is None:
        return None
    return MemoryEstimate(weights=given.facts.weight_bytes, cache=0, workspace=_WORKSPACE_BYTES)


ENGINE: Final = EngineSpec(
    name="generation",
    summary="one-shot networks: encoders, vocoders, decoders of latents",
    runs=frozenset({ExecutionType.LLM_GENERATION}),
    default_for=frozenset({ExecutionType.LLM_GENERATION}),
    options=GenerationOptions,
    memory=_memory,
    needs_weights=True,
    factory="stagemesh.engines._generation:make_engine",
)
