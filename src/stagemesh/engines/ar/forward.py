"""One step of an `ar` stage at full batch, for traffic and speed: every sequence gets a token."""

from __future__ import annotations

from typing import Final

from stagemesh.engines._budget import expert_bytes, weight_bytes
from stagemesh.engines.ar.memory import cached_tokens, computed_dtype, held, sequences_at_once
from stagemesh.engines.ar.options import ArOptions
from stagemesh.spec.cost import Forward, Part, Work
from stagemesh.spec.engine import MemoryInput
from stagemesh.spec.payload import DTYPE_BYTES

CONTEXT_TOKENS: Final = 1024
"""Tokens that lie behind each new one, in a nominal request."""
ANSWER_TOKENS: Final = 256
"""Tokens of a nominal answer, as many as a request gets that does not say."""


def decode_step(given: MemoryInput) -> Forward:
    """Describe a step; what it does is unknown where the checkpoint does not say enough."""
    base, options, dtype = held(given), given.args, computed_dtype(given)
    assert isinstance(options, ArOptions)
    whole, width = weight_bytes(given, dtype), DTYPE_BYTES[dtype]
    # ranks with different layers work on different requests, which share seats and cache
    batch, work, waves = sequences_at_once(options), None, given.cut(Part.LAYERS)
    if base is not None and whole is not None:
        context = min(CONTEXT_TOKENS, base.longest)
        batch = max(1, min(batch, cached_tokens(given, base) // context) // waves)
        work = _work(given, whole, batch=batch, context=context, token_bytes=base.token_bytes)
    return Forward(
        tokens=batch,
        element_bytes=width,
        weight_bytes=whole,
        work=work,
        repeats=ANSWER_TOKENS,
        batch=batch,
    )


def _work(given: MemoryInput, whole: int, *, batch: int, context: int, token_bytes: int) -> Work:
    """Count operations and bytes of one step.

    A weight takes two operations a token. Attention takes four for each number of a query and each
    token before it. Read are the weights that some token of the batch needs, and the cache.
    """
    facts, width = given.facts, DTYPE_BYTES[computed_dtype(given)]
    experts = expert_bytes(given, whole, width)
    visited = (facts.num_experts_per_tok or 1) / (facts.num_experts or 1)
    sliced = given.cut(Part.WIDTH)
    dense = (whole - experts) / sliced
    expert = experts / given.pieces.get(Part.EXPERTS, sliced)
    query = (facts.num_attention_heads or 0) * (facts.head_dim or 0) * (facts.num_layers or 0)
    return Work(
        flops=batch * (2 * (dense + expert * visited) / width + 4 * context * query / sliced),
        read_bytes=dense
        + expert * min(1.0, batch * visited)
        + batch * context * token_bytes * given.cut(Part.LAYERS),
    )
