"""Writes `thinker/`: the packaged GGUF file of SmolLM2-135M-Instruct as an ordinary checkpoint.

The 4-bit and 8-bit blocks are dequantised to float32 and rounded to bfloat16, which is what
`transformers` does when it loads the file with `dequantize=True` (a test compares the two).
llama.cpp stores query and key rows interleaved for its rotary embedding; they are put back here.

Shape suffixes: h heads, d head width, e embedding width.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stagemesh.models.voice_chat._sources import GGUF_FILE, THINKER, BadSourceError, source_file

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_CONTROL_TOKEN: Final = 3
_USER_TOKEN: Final = 4

_LAYER_NAMES: Final[Mapping[str, str]] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OTHER_NAMES: Final[Mapping[str, str]] = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def write_thinker(folder: Path) -> dict[str, Any]:
    """Write weights, configuration, tokenizer and chat template into `folder`.

    Returns the configuration. Raises `MissingSourceError` or `BadSourceError`.
    """
    from gguf import GGUFReader  # noqa: PLC0415  # only an assembly needs it

    reader = GGUFReader(source_file(THINKER, GGUF_FILE))
    names = [name for name in reader.fields if not name.endswith((".scores", ".token_type"))]
    facts: dict[str, Any] = {name: reader.fields[name].contents() for name in names}
    if facts.get("general.architecture") != "llama":
        raise BadSourceError(THINKER, f"holds `{facts.get('general.architecture')}`, not `llama`")
    types = reader.fields["tokenizer.ggml.token_type"].contents()
    config = _config(facts)
    _write_weights(reader, config, folder / "model.safetensors")
    _write_tokenizer(facts, types, folder)
    _write_json(folder / "config.json", config)
    ids = {f"{role}_token_id": config[f"{role}_token_id"] for role in ("bos", "eos", "pad")}
    _write_json(folder / "generation_config.json", ids)
    return config


def _config(facts: Mapping[str, Any]) -> dict[str, Any]:
    def fact(name: str) -> Any:  # noqa: ANN401  # a GGUF value: a number or a string
        return facts[f"llama.{name}"]

    heads = fact("attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": fact("embedding_length"),
        "intermediate_size": fact("feed_forward_length"),
        "num_hidden_layers": fact("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": fact("attention.head_count_kv"),
        "head_dim": fact("embedding_length") // heads,
        "max_position_embeddings": fact("context_length"),
        # the file keeps the norm's epsilon as a float32
        "rms_norm_eps": float(f"{fact('attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_parameters": {"rope_type": "default", "rope_theta": fact("rope.freq_base")},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "vocab_size": fact("vocab_size"),
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "pad_token_id": facts["tokenizer.ggml.padding_token_id"],
    }


def _write_weights(reader: Any, config: Mapping[str, Any], path: Path) -> None:  # noqa: ANN401
    import torch  # noqa: PLC0415
    from gguf import dequantize  # noqa: PLC0415
    from safetensors.torch import save_file  # noqa: PLC0415

    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors: dict[str, torch.Tensor] = {}
    for entry in reader.tensors:
        values = dequantize(entry.data, entry.tensor_type)
        kind = entry.name.split(".")[2] if entry.name.startswith("blk.") else entry.name
        if kind in heads:
            values = _rows_in_order(values, heads[kind])
        # a copy: float32 tensors are read-only views of the file
        tensors[_hf_name(entry.name)] = torch.tensor(values).to(torch.bfloat16)
    save_file(tensors, path, metadata={"format": "pt"})


def _rows_in_order(weight_hd_e: npt.NDArray[np.float32], num_heads: int) -> npt.NDArray[np.float32]:
    """Undo llama.cpp's order of query and key rows: i and i + d/2 of a head are neighbours."""
    rows, width = weight_hd_e.shape
    half = rows // num_heads // 2
    pairs = weight_hd_e.reshape(num_heads, half, 2, width)
    return pairs.swapaxes(1, 2).reshape(rows, width)


def _hf_name(name: str) -> str:
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    parts = name.split(".")
    if len(parts) != 4 or parts[0] != "blk" or parts[2] not in _LAYER_NAMES:  # noqa: PLR2004
        raise BadSourceError(THINKER, f"holds the unknown tensor `{name}`")
    return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.{parts[3]}"


def _write_tokenizer(facts: Mapping[str, Any], types: list[int], folder: Path) -> None:
    """Byte-level BPE with single digits, as the file's `tokenizer.ggml.pre = smollm` asks for."""
    from tokenizers import (  # noqa: PLC0415
        AddedToken,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
    )

    if facts["tokenizer.ggml.pre"] != "smollm":
        raise BadSourceError(THINKER, f"has the tokenizer `{facts['tokenizer.ggml.pre']}`")
    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in facts["tokenizer.ggml.merges"]]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [
        AddedToken(token, special=kind == _CONTROL_TOKEN, normalized=False)
        for token, kind in zip(tokens, types, strict=True)
        if kind in {_CONTROL_TOKEN, _USER_TOKEN}
    ]
    tokenizer.add_special_tokens([token for token in special if token.special])
    tokenizer.add_tokens([token for token in special if not token.special])
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    template: str = facts["tokenizer.chat_template"]
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": facts["llama.context_length"],
        "bos_token": tokens[facts["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[facts["tokenizer.ggml.eos_token_id"]],
        "unk_token": tokens[facts["tokenizer.ggml.unknown_token_id"]],
        "pad_token": tokens[facts["tokenizer.ggml.padding_token_id"]],
        "chat_template": template,
    }
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
