"""The memory of a rank of an `ar` stage; one arithmetic for the plan and the running cache."""

from __future__ import annotations

from typing import Final

from stagemesh.engines.ar.options import ArOptions
from stagemesh.spec.engine import MemoryEstimate, MemoryInput
from stagemesh.spec.payload import DTYPE_BYTES

_DEFAULT_CACHE_BYTES: Final = 2**30
_WORKSPACE_BYTES: Final = 256 * 2**20
_USUAL_DTYPE: Final = "bfloat16"
"""What a checkpoint that does not say its type is taken for."""
_CPU: Final = "cpu"


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
    stored = facts.weight_dtype or _USUAL_DTYPE
    computed = _computed(options.dtype, stored, given.device_kind)
    token_bytes = -(-layers // pp) * 2 * -(-kv_heads // tp) * head_dim * DTYPE_BYTES[computed]
    blocks = cache_blocks(options, token_bytes=token_bytes, max_model_len=max_model_len)
    return MemoryEstimate(
        weights=weights * DTYPE_BYTES[computed] // DTYPE_BYTES[stored] // (tp * pp),
        cache=blocks * options.block_size * token_bytes,
        workspace=_WORKSPACE_BYTES,
    )


def _computed(wanted: str, stored: str, device_kind: str) -> str:
    """The type of weights and cache; the widest that it may be, where only the machine can tell."""
    if wanted != "auto":
        return wanted
    return "float32" if device_kind == _CPU else stored
