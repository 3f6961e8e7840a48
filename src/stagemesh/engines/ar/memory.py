"""The memory of a rank of an `ar` stage; one arithmetic for the plan and the running cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stagemesh.engines.ar.options import ArOptions
from stagemesh.spec.axis import Finding
from stagemesh.spec.engine import MemoryEstimate, MemoryInput
from stagemesh.spec.payload import DTYPE_BYTES

_DEFAULT_CACHE_BYTES: Final = 2**30
_WORKSPACE_BYTES: Final = 256 * 2**20
_USUAL_DTYPE: Final = "bfloat16"
"""What a checkpoint that does not say its type is taken for."""
_CPU: Final = "cpu"
_AUTO: Final = "auto"


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
    stored = facts.weight_dtype or _USUAL_DTYPE
    # the widest type that it may be, where only the machine can tell
    computed = "float32" if options.dtype == _AUTO and given.device_kind == _CPU else options.dtype
    token_bytes = _token_bytes(given, computed)
    max_model_len = options.max_model_len or facts.max_model_len
    if max_model_len is None or token_bytes is None or facts.weight_bytes is None:
        return None
    ranks = given.sizes.get("tp", 1) * given.sizes.get("pp", 1)
    blocks = cache_blocks(options, token_bytes=token_bytes, max_model_len=max_model_len)
    width = DTYPE_BYTES[stored if computed == _AUTO else computed]
    return MemoryEstimate(
        weights=facts.weight_bytes * width // DTYPE_BYTES[stored] // ranks,
        cache=blocks * options.block_size * token_bytes,
        workspace=_WORKSPACE_BYTES,
    )


def check(given: MemoryInput) -> Iterator[Finding]:
    """Find lengths that the model does not have, and caches that hold no whole sequence."""
    options, longest = given.args, given.facts.max_model_len
    assert isinstance(options, ArOptions)
    wanted = options.max_model_len or longest
    if longest is not None and wanted is not None and wanted > longest:
        yield Finding(
            code="PL060",
            message=f"`max_model_len` is `{wanted}`, and the model allows `{longest}`",
            help=f"write `max_model_len: {longest}` or less, or leave it out",
            field="max_model_len",
        )
        return
    budget, token_bytes = options.kv_cache_memory_bytes, _token_bytes(given, options.dtype)
    if budget is None or token_bytes is None or wanted is None:
        return
    need = -(-wanted // options.block_size) * options.block_size * token_bytes
    if budget < need:
        yield Finding(
            code="PL061",
            message=f"`kv_cache_memory_bytes` is `{budget}`, and one sequence needs `{need}`",
            help=f"write at least `{need}`, or a smaller `max_model_len` than `{wanted}`",
            field="kv_cache_memory_bytes",
        )


def _token_bytes(given: MemoryInput, dtype: str) -> int | None:
    """Bytes that one token takes in the cache of one rank; `auto` is the type of the weights."""
    facts, sizes = given.facts, given.sizes
    if facts.num_layers is None or facts.num_kv_heads is None or facts.head_dim is None:
        return None
    width = DTYPE_BYTES[(facts.weight_dtype or _USUAL_DTYPE) if dtype == _AUTO else dtype]
    layers = -(-facts.num_layers // sizes.get("pp", 1))
    return layers * 2 * -(-facts.num_kv_heads // sizes.get("tp", 1)) * facts.head_dim * width
