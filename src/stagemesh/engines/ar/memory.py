"""The memory of a rank of an `ar` stage; one arithmetic for the plan and the running cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from stagemesh.engines._budget import (
    CPU,
    USUAL_DTYPE,
    WORKSPACE_BYTES,
    activation_bytes,
    expert_bytes,
    sliced_bytes,
    target_bytes,
    weight_bytes,
)
from stagemesh.engines.ar.options import ALL_THAT_FITS, ArOptions
from stagemesh.plan.words import size_text
from stagemesh.spec.axis import Finding
from stagemesh.spec.cost import Part
from stagemesh.spec.engine import MemoryEstimate, MemoryInput
from stagemesh.spec.frozen import frozen
from stagemesh.spec.payload import DTYPE_BYTES

_DEFAULT_CACHE_BYTES: Final = 2**30
_SCORE_BYTES: Final = 4
"""Scores of the next token are float32."""
_AUTO: Final = "auto"
_SHARES: Final = 10_000
"""Steps of the share that is advised: fine enough for a small model on a large device."""


def cache_blocks(options: ArOptions, *, token_bytes: int, max_model_len: int) -> int:
    """Blocks of the key-value cache, where one token takes `token_bytes`.

    Without a budget: enough for `max_num_seqs` full sequences, at most 1 GiB, at least one of them.
    """
    block_bytes = options.block_size * token_bytes
    sequence = -(-max_model_len // options.block_size)
    if options.kv_cache_memory_bytes is not None:
        return options.kv_cache_memory_bytes // block_bytes
    return max(sequence, min(sequence * options.max_num_seqs, _DEFAULT_CACHE_BYTES // block_bytes))


def served_length(options: ArOptions, *, token_bytes: int, longest: int) -> int:
    """Longest sequence that is served by a model that takes `longest` tokens."""
    if options.max_model_len != ALL_THAT_FITS:
        return options.max_model_len or longest
    budget = options.kv_cache_memory_bytes
    budget = _DEFAULT_CACHE_BYTES if budget is None else budget
    return min(longest, budget // (options.block_size * token_bytes) * options.block_size)


def sequences_at_once(options: ArOptions) -> int:
    """Most sequences of one step: each has one token of it at least."""
    return min(options.max_num_seqs, options.max_num_batched_tokens)


@frozen
class Held:
    """What one rank holds, before the cache is cut into blocks."""

    weights: int
    """Bytes of its weights."""
    workspace: int
    """Bytes of activations and of the process."""
    token_bytes: int
    """Bytes of one token in its cache."""
    longest: int
    """Tokens that the model takes."""


def held(given: MemoryInput) -> Held | None:
    """Count all but the cache, or return `None` when the checkpoint does not say enough."""
    options, facts, dtype = _options(given), given.facts, computed_dtype(given)
    token_bytes, whole = _token_bytes(given, dtype), weight_bytes(given, dtype)
    longest = facts.max_model_len
    if longest is None and options.max_model_len != ALL_THAT_FITS:
        longest = options.max_model_len
    if longest is None or token_bytes is None or whole is None:
        return None
    width = DTYPE_BYTES[dtype]
    inner = 2 * -(-(facts.intermediate_size or 0) // given.cut(Part.WIDTH))
    tokens = -(-options.max_num_batched_tokens // given.cut(Part.TOKENS))
    scores = sequences_at_once(options) * (facts.vocab_size or 0) * _SCORE_BYTES
    return Held(
        weights=_rank_weights(given, whole, width),
        workspace=WORKSPACE_BYTES
        + given.buffer_bytes
        + activation_bytes(given, tokens=tokens, inner=inner, element_bytes=width)
        + scores,
        token_bytes=token_bytes,
        longest=longest,
    )


def estimate(given: MemoryInput) -> MemoryEstimate | None:
    """Bytes of one rank, or `None` when the checkpoint does not say enough."""
    base = held(given)
    if base is None:
        return None
    options = _with_budget(given, base)
    return MemoryEstimate(
        weights=base.weights,
        cache=_blocks(options, base) * options.block_size * base.token_bytes,
        workspace=base.workspace,
        context=given.context_bytes,
    )


def cached_tokens(given: MemoryInput, base: Held) -> int:
    """Tokens that the cache of a rank holds."""
    options = _with_budget(given, base)
    return _blocks(options, base) * options.block_size


def check(given: MemoryInput) -> Iterator[Finding]:
    """Find lengths that the model does not have, and caches that hold no whole sequence."""
    options, longest = _options(given), given.facts.max_model_len
    wanted = longest if options.max_model_len == ALL_THAT_FITS else options.max_model_len or longest
    if longest is not None and wanted is not None and wanted > longest:
        yield Finding(
            code="PL060",
            message=f"`max_model_len` is `{wanted}`, and the model allows `{longest}`",
            help=f"write `max_model_len: {longest}` or less, or leave it out",
            field="max_model_len",
        )
        return
    # the narrowest type that it may be: a CPU may compute in that of the files
    stored = given.facts.weight_dtype or USUAL_DTYPE
    token_bytes = _token_bytes(given, stored if options.dtype == _AUTO else options.dtype)
    if token_bytes is None or wanted is None:
        return
    if options.max_model_len == ALL_THAT_FITS:
        wanted = options.block_size
    yield from _too_little(given, wanted, token_bytes)


def _too_little(given: MemoryInput, wanted: int, token_bytes: int) -> Iterator[Finding]:
    """Find a budget, or a share of the device, that holds no sequence of `wanted` tokens."""
    options, base = _options(given), held(given)
    need = -(-wanted // options.block_size) * options.block_size * token_bytes
    budget, target = options.kv_cache_memory_bytes, target_bytes(given)
    if budget is not None:
        if budget < need:
            yield Finding(
                code="PL061",
                message=f"`kv_cache_memory_bytes` is `{budget}`, and one sequence needs `{need}`",
                help=f"write at least `{need}`, or a smaller `max_model_len` than `{wanted}`",
                field="kv_cache_memory_bytes",
            )
    elif base is not None and target is not None:
        fixed = base.weights + base.workspace + given.context_bytes
        least = _share_text(fixed + need, given.device_memory_bytes or 1)
        if target < fixed + need:
            more = "" if least is None else f"write at least `{least}`, "
            yield Finding(
                code="PL130",
                message=f"`gpu_memory_utilization` gives {size_text(target)}, and a rank needs"
                f" {size_text(fixed + need)}",
                help=f"weights and workspace take {size_text(fixed)}, one sequence of `{wanted}`"
                f" tokens {size_text(need)}; {more}cut the weights by an axis such as `tp`, or"
                " lower `max_model_len`",
                field="gpu_memory_utilization",
            )


def _share_text(need: int, memory: int) -> str | None:
    """Return the least share of `memory`, in whole ten-thousandths, that holds `need`."""
    parts = -(-need * _SHARES // memory)
    return f"{parts / _SHARES:g}" if parts <= _SHARES else None


def computed_dtype(given: MemoryInput) -> str:
    """Type of weights and cache; the widest that it may be, where only the machine can tell."""
    wanted = _options(given).dtype
    if wanted != _AUTO:
        return wanted
    return "float32" if given.device_kind == CPU else given.facts.weight_dtype or USUAL_DTYPE


def _rank_weights(given: MemoryInput, whole: int, width: int) -> int:
    """Weights of the rank that holds most: that of the first layers, with the whole embedding."""
    table = min((given.facts.vocab_size or 0) * (given.facts.hidden_size or 0) * width, whole)
    experts = expert_bytes(given, whole - table, width)
    layers = given.facts.num_layers or 1
    own = -(-layers // given.cut(Part.LAYERS))
    return table + -(-sliced_bytes(given, whole - table, experts) * own // layers)


def _with_budget(given: MemoryInput, base: Held) -> ArOptions:
    """Turn a share of the device into bytes of cache: what weights and workspace leave of it."""
    options, target = _options(given), target_bytes(given)
    if target is None or options.kv_cache_memory_bytes is not None:
        return options
    left = target - base.weights - base.workspace - given.context_bytes
    return replace(options, kv_cache_memory_bytes=max(left, 0))


def _blocks(options: ArOptions, base: Held) -> int:
    length = served_length(options, token_bytes=base.token_bytes, longest=base.longest)
    return cache_blocks(options, token_bytes=base.token_bytes, max_model_len=length)


def _token_bytes(given: MemoryInput, dtype: str) -> int | None:
    """Bytes that one token takes in the cache of one rank."""
    facts = given.facts
    if facts.num_layers is None or facts.num_kv_heads is None or facts.head_dim is None:
        return None
    layers = -(-facts.num_layers // given.cut(Part.LAYERS))
    heads = -(-facts.num_kv_heads // given.cut(Part.WIDTH))
    return layers * 2 * heads * facts.head_dim * DTYPE_BYTES[dtype]


def _options(given: MemoryInput) -> ArOptions:
    assert isinstance(given.args, ArOptions)
    return given.args
