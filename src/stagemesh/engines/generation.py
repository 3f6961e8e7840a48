"""The `generation` engine: one-shot networks such as vocoders and encoders, batched by bucket."""

from __future__ import annotations

from typing import Annotated, Final, cast

from stagemesh.engines._budget import (
    WORKSPACE_BYTES,
    activation_bytes,
    given_dtype,
    stage_dtype,
    target_bytes,
    weight_bytes,
)
from stagemesh.spec.bounds import Range
from stagemesh.spec.cost import Forward, Part, Work
from stagemesh.spec.engine import EngineSpec, MemoryEstimate, MemoryInput
from stagemesh.spec.frozen import frozen
from stagemesh.spec.payload import DTYPE_BYTES
from stagemesh.spec.pipeline import ExecutionType

_TOKENS: Final = 512
"""Tokens of a nominal pass, where the checkpoint gives no length."""


@frozen
class GenerationOptions:
    """Arguments of the `generation` engine."""

    max_num_seqs: Annotated[int, Range(minimum=1)] = 8
    """Most requests that one step runs together."""
    num_threads: Annotated[int, Range(minimum=1)] = 1
    """Threads of torch on a CPU device."""


def _memory(given: MemoryInput) -> MemoryEstimate | None:
    """Weights, the activations of a full batch, and at least the share of the device given."""
    whole, facts = weight_bytes(given, given_dtype(given)), given.facts
    if whole is None:
        return None
    weights = -(-whole // given.cut(Part.WIDTH))
    inner = 2 * -(-(facts.intermediate_size or 0) // given.cut(Part.WIDTH))
    workspace = WORKSPACE_BYTES + given.buffer_bytes
    together = cast("GenerationOptions", given.args).max_num_seqs
    workspace += activation_bytes(
        given, tokens=together * _tokens(given), inner=inner, element_bytes=_element_bytes(given)
    )
    target = (target_bytes(given) or 0) - weights - given.context_bytes
    return MemoryEstimate(
        weights=weights,
        cache=0,
        workspace=max(workspace, target),
        context=given.context_bytes,
    )


def _forward(given: MemoryInput) -> Forward:
    """Describe one pass: two operations a weight and token, and every weight read once."""
    whole, tokens, width = (
        weight_bytes(given, given_dtype(given)),
        _tokens(given),
        _element_bytes(given),
    )
    weights = (whole or 0) / given.cut(Part.WIDTH)
    return Forward(
        tokens=tokens,
        element_bytes=width,
        weight_bytes=whole,
        work=Work(flops=2 * tokens * weights / width, read_bytes=weights) if weights else None,
    )


def _tokens(given: MemoryInput) -> int:
    return given.facts.sequence_length or _TOKENS


def _element_bytes(given: MemoryInput) -> int:
    return DTYPE_BYTES[stage_dtype(given)]


ENGINE: Final = EngineSpec(
    name="generation",
    summary="one-shot networks: encoders, vocoders, decoders of latents",
    runs=frozenset({ExecutionType.LLM_GENERATION}),
    default_for=frozenset({ExecutionType.LLM_GENERATION}),
    options=GenerationOptions,
    memory=_memory,
    forward=_forward,
    needs_weights=True,
    factory="stagemesh.engines._generation:make_engine",
)
