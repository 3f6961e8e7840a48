"""Reading facts out of a checkpoint's `config.json`: exact keys, and nothing is guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from stagemesh.spec.facts import StageFacts
from stagemesh.spec.payload import DTYPE_BYTES
from stagemesh.spec.pipeline import JsonObject


def section(config: JsonObject, *keys: str) -> JsonObject:
    """Return the mapping that lies below `keys`; an empty one when it is missing.

    Raises `TypeError` naming the path when something else lies there.
    """
    for depth, key in enumerate(keys, 1):
        inner = config.get(key, {})
        if not isinstance(inner, Mapping):
            message = f"`{'.'.join(keys[:depth])}` must be a mapping, got `{inner!r}`"
            raise TypeError(message)
        config = cast("JsonObject", inner)
    return config


def count(config: JsonObject, key: str) -> int | None:
    """Return the whole number at `key`, or `None` when it is missing.

    Raises `TypeError` naming the key when something else lies there.
    """
    value = config.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    message = f"`{key}` must be a whole number, got `{value!r}`"
    raise TypeError(message)


def dtype(config: JsonObject) -> str | None:
    """Return the type of the weights, by its new or its old key; `None` for an unknown one."""
    value = config.get("dtype", config.get("torch_dtype"))
    return value if isinstance(value, str) and value in DTYPE_BYTES else None


def decoder(config: JsonObject, whole: JsonObject | None = None) -> StageFacts:
    """Return what the section of a dense decoder of `transformers` says.

    `whole` is the file around it, which may give the type of all weights together. Raises
    `TypeError` naming the key when a value is no whole number.
    """
    heads, hidden = count(config, "num_attention_heads"), count(config, "hidden_size")
    head_dim = count(config, "head_dim")
    if head_dim is None and heads and hidden:
        head_dim = hidden // heads
    return StageFacts(
        num_attention_heads=heads,
        num_kv_heads=count(config, "num_key_value_heads"),
        num_layers=count(config, "num_hidden_layers"),
        num_experts=0,
        hidden_size=hidden,
        intermediate_size=count(config, "intermediate_size"),
        head_dim=head_dim,
        vocab_size=count(config, "vocab_size"),
        max_model_len=count(config, "max_position_embeddings"),
        weight_dtype=dtype(config) or dtype(whole or {}),
    )


def moe_decoder(config: JsonObject, whole: JsonObject | None = None) -> StageFacts:
    """Return the same of a decoder whose feed-forward blocks are mixtures of experts.

    The width outside the experts is that of the expert which every token visits; without one it is
    not known, since no block of that kind is left.
    """
    return replace(
        decoder(config, whole),
        num_experts=count(config, "num_experts"),
        num_experts_per_tok=count(config, "num_experts_per_tok"),
        moe_intermediate_size=count(config, "moe_intermediate_size"),
        intermediate_size=count(config, "shared_expert_intermediate_size") or None,
    )
