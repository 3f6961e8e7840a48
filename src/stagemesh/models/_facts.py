"""Reading facts out of a checkpoint's `config.json`: exact keys, and nothing is guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

from stagemesh.spec.facts import StageFacts
from stagemesh.spec.payload import DTYPE_BYTES
from stagemesh.spec.pipeline import JsonObject

_GATED: Final = 3
"""Matrices of a gated feed-forward block: gate, up and down."""
_PLAIN: Final = 2
"""Matrices of one without a gate."""


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
    facts = StageFacts(
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
    return replace(facts, num_parameters=_weights(facts, config, whole or {}))


def _weights(facts: StageFacts, config: JsonObject, whole: JsonObject) -> int | None:
    """Count the weights of a decoder; `None` where a width is missing.

    The head is another table than the embedding unless the file says that they are one. Norms and
    biases are left out: they are less than a thousandth.
    """
    hidden, heads, keys = facts.hidden_size, facts.num_attention_heads, facts.num_kv_heads
    wide, layers, words = facts.head_dim, facts.num_layers, facts.vocab_size
    inner = facts.intermediate_size or 0
    if not (hidden and heads and keys and wide and layers and words):
        return None
    tied = config.get("tie_word_embeddings", whole.get("tie_word_embeddings")) is True
    experts = 0
    if facts.num_experts:
        if facts.moe_intermediate_size is None:
            return None
        experts = facts.num_experts * (_GATED * facts.moe_intermediate_size + 1)
    elif not inner:
        return None
    layer = hidden * (2 * wide * (heads + keys) + _GATED * inner + experts)
    return layers * layer + words * hidden * (1 if tied else 2)


def with_encoders(facts: StageFacts, config: JsonObject) -> StageFacts:
    """Add the weights of the encoders of sounds and pictures that a thinker holds as well."""
    if facts.num_parameters is None:
        return facts
    sound, picture = section(config, "audio_config"), section(config, "vision_config")
    encoders = (
        (sound, "encoder_layers", "d_model", "encoder_ffn_dim", _PLAIN),
        (picture, "depth", "hidden_size", "intermediate_size", _GATED),
    )
    weights = 0
    for keys, layers, width, inner, matrices in encoders:
        hidden = count(keys, width) or 0
        block = 4 * hidden + matrices * (count(keys, inner) or 0)
        weights += (count(keys, layers) or 0) * hidden * block
    return replace(facts, num_parameters=facts.num_parameters + weights)


def moe_decoder(config: JsonObject, whole: JsonObject | None = None) -> StageFacts:
    """Return the same of a decoder whose feed-forward blocks are mixtures of experts.

    The width outside the experts is that of the expert which every token visits; without one it is
    not known, since no block of that kind is left.
    """
    facts = replace(
        decoder(config, whole),
        num_experts=count(config, "num_experts"),
        num_experts_per_tok=count(config, "num_experts_per_tok"),
        moe_intermediate_size=count(config, "moe_intermediate_size"),
        intermediate_size=count(config, "shared_expert_intermediate_size") or None,
    )
    return replace(facts, num_parameters=_weights(facts, config, whole or {}))
