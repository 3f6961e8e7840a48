"""The memory of a rank of an `ar` stage; one arithmetic for the plan and the running cache."""

from __future__ import annotations

from typing import Final

from stagemesh.engines.ar.options import ArOptions
from stagemesh.spec.engine import MemoryEstimate, MemoryInput
from stagemesh.spec.payload import DTYPE_BYTES

_DEFAULT_CACHE_BYTES: Final = 2**30
_WORKSPACE_BYTES: Final = 256 * 2**20


def cache_blocks(options: ArOptions, *, token_bytes: int, max_model_len: int) -> int:
    """Blocks of the key-value cache, where one token takes `token_bytes`.

    Without a budget: enough for `max_num_seqs` full sequences, at most 1 GiB, at least one of them.
    """
    block_bytes = options.block_size * token_bytes
    sequence = -(-max_model_len // options.block_size)
    if options.kv_cache_memory_bytes is not None:
        return options.kv_cache_memory_bytes // block_bytes
    return max(sequence, min(sequence * options.max_num_seqs, _DEFAULT_CACHE_BYTES // block_bytes))


def estimate(given: MemoryInput) -> MemoryEstimate | None:
    """Bytes of one rank, or `None` when the checkpoint does not say enough."""
    options, facts = given.args, given.facts
    assert isinstance(options, ArOptions)
    max_model_len = options.max_model_len or facts.max_model_len
    known = (facts.weight_bytes, facts.num_layers, facts.num_kv_heads, facts.head_dim)
    if max_model_len is None or None in known:
        return None
    weights, layers, kv_heads, head_dim = (number or 0 for number in known)
    tp, pp = given.sizes.get("tp", 1), given.sizes.get("pp", 1)
    dtype_bytes = DTYPE_BYTES["bfloat16" if options.dtype == "auto" else options.dtype]
    token_bytes = -(-layers // pp) * 2 * -(-kv_heads // tp) * head_dim * dtype_bytes
    blocks = cache_blocks(options, token_bytes=token_bytes, max_model_len=max_model_len)
    return MemoryEstimate(
        weights=weights // (tp * pp),
        cache=blocks * options.block_size * token_bytes,
        workspace=_WORKSPACE_BYTES,
    )
