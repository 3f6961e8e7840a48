"""Text encoders of `transformers`: facts and number of weights, by the `model_type` of the file.

As for denoisers, the matrices are counted: embeddings, layers and what stands at the exit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from stagemesh.models._diffusers.numbers import MissingNumberError, flag, heads, number
from stagemesh.models._facts import dtype, section
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import JsonObject

_WITH_HEAD: Final = (
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
)
"""Architectures that carry the matrix from hidden states to words, though no encoder needs it."""
_PROJECTING: Final = ("CLIPTextModelWithProjection",)
"""Architectures of CLIP with a matrix at the exit."""


def text_encoder(config: JsonObject) -> StageFacts:
    """Read the configuration of a text encoder; of a type that is not known nothing but its dtype.

    Raises `TypeError` naming the key when a value is no usable number.
    """
    read = _READERS.get(str(config.get("model_type")))
    found = StageFacts()
    if read is not None:
        try:
            found = read(config)
        except MissingNumberError:  # then it says too little for any of them
            found = StageFacts()
    return replace(found, weight_dtype=dtype(config))


def _t5(config: JsonObject) -> StageFacts:
    """Encoder half of T5 and UMT5: `4 d a + 3 d f` a layer, `a` the width of all heads."""
    d, f, layers = number(config, "d_model"), number(config, "d_ff"), number(config, "num_layers")
    count, width = heads(config, "num_heads"), number(config, "d_kv")
    vocabulary = number(config, "vocab_size")
    gates = 3 if flag(config, "is_gated_act") or config.get("feed_forward_proj") in _GATED else 2
    return StageFacts(
        num_attention_heads=count,
        num_kv_heads=count,
        num_layers=layers,
        num_experts=0,
        hidden_size=d,
        intermediate_size=f,
        head_dim=width,
        vocab_size=vocabulary,
        num_parameters=layers * (4 * d * count * width + gates * d * f) + vocabulary * d,
    )


_GATED: Final = ("gated-gelu", "gated-silu")
"""Feed-forward blocks of T5 with two matrices at their entry."""


def _clip(config: JsonObject) -> StageFacts:
    """Text half of CLIP: `4 d^2 + 2 d f` a layer, tables of words and positions, maybe an exit."""
    d, f = number(config, "hidden_size"), number(config, "intermediate_size")
    layers, count = number(config, "num_hidden_layers"), heads(config, "num_attention_heads")
    vocabulary = number(config, "vocab_size", 49408)
    tables = d * (vocabulary + number(config, "max_position_embeddings", 77))
    projection = d * number(config, "projection_dim", d) if _is_one_of(config, _PROJECTING) else 0
    return StageFacts(
        num_attention_heads=count,
        num_kv_heads=count,
        num_layers=layers,
        num_experts=0,
        hidden_size=d,
        intermediate_size=f,
        head_dim=d // count,
        vocab_size=vocabulary,
        num_parameters=layers * (4 * d * d + 2 * d * f) + tables + projection,
    )


def _decoder(config: JsonObject) -> StageFacts:
    """A dense decoder with gated blocks, alone or as the language half of a model that sees.

    A layer has `2 d a + 2 d k + 3 d f`, with `a` and `k` the widths of all query and all key heads.
    """
    text = section(config, "text_config") or config
    d, f = number(text, "hidden_size"), number(text, "intermediate_size")
    layers, count = number(text, "num_hidden_layers"), heads(text, "num_attention_heads")
    groups = heads(text, "num_key_value_heads", count)
    width = number(text, "head_dim", max(d // count, 1))
    vocabulary = number(text, "vocab_size")
    layer = 2 * d * count * width + 2 * d * groups * width + 3 * d * f
    return StageFacts(
        num_attention_heads=count,
        num_kv_heads=groups,
        num_layers=layers,
        num_experts=0,
        hidden_size=d,
        intermediate_size=f,
        head_dim=width,
        vocab_size=vocabulary,
        num_parameters=layers * layer
        + (1 + _has_head(config)) * vocabulary * d
        + _vision(section(config, "vision_config")),
    )


def _has_head(config: JsonObject) -> bool:
    return _is_one_of(config, _WITH_HEAD) and config.get("tie_word_embeddings") is False


def _is_one_of(config: JsonObject, architectures: Collection[str]) -> bool:
    named = config.get("architectures")
    return isinstance(named, list) and any(each in architectures for each in named)


def _vision(config: JsonObject) -> int:
    """Weights of a vision tower of gated blocks: `4 d^2 + 3 d f` a layer; 0 where there is none.

    A tower that merges 2 x 2 patches, as Qwen's, has two more matrices at its exit.
    """
    layers = config.get("depth", config.get("num_hidden_layers"))
    if layers is None:
        return 0
    d, f = number(config, "hidden_size"), number(config, "intermediate_size")
    merged, exit_width = 4 * d, number(config, "out_hidden_size", 0, least=0)
    merger = merged * (merged + exit_width) if exit_width else 0
    depth = number({"depth": layers}, "depth")
    return depth * (4 * d * d + 3 * d * f) + merger


_Reader: TypeAlias = Callable[[JsonObject], StageFacts]

_READERS: Final[Mapping[str, _Reader]] = {
    "t5": _t5,
    "umt5": _t5,
    "clip_text_model": _clip,
    "llama": _decoder,
    "mistral": _decoder,
    "mistral3": _decoder,
    "qwen2": _decoder,
    "qwen2_vl": _decoder,
    "qwen2_5_vl": _decoder,
    "qwen3": _decoder,
}
"""Readers by `model_type`."""
KNOWN_TEXT_ENCODERS: Final = tuple(_READERS)
"""Types whose configuration is understood."""
