"""Tiny checkpoints with random weights, made on the spot, and engines over them."""

from __future__ import annotations

import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    LlamaConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

from stagemesh.engines.ar.engine import ArEngine
from stagemesh.engines.ar.options import ArOptions
from stagemesh.spec.engine import EngineContext, EngineOutput, EngineRequest
from stagemesh.spec.payload import Buffer, Payload
from stagemesh.testing.engine_context import engine_context

CHAT_TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}<answer>"
)
END_TOKEN = 256
MAX_LEN = 256
_SHAPE: dict[str, Any] = {
    "vocab_size": 260,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": MAX_LEN,
    "bos_token_id": 257,
    "eos_token_id": END_TOKEN,
    "pad_token_id": 258,
    "dtype": "float32",
    "tie_word_embeddings": False,
}
CONFIGS = {
    "llama": LlamaConfig(**_SHAPE),
    "qwen2": Qwen2Config(**{name: value for name, value in _SHAPE.items() if name != "head_dim"}),
    "gemma": GemmaConfig(**_SHAPE),
    "gemma2": Gemma2Config(**_SHAPE, sliding_window=16, query_pre_attn_scalar=8),
    "gemma3": Gemma3TextConfig(**_SHAPE, sliding_window=16, query_pre_attn_scalar=8),
}


def write_model(folder: Path, kind: str) -> Path:
    """Write a checkpoint of the given kind with a byte tokenizer and return its folder."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[kind])
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:  # large enough that the answers are not all one token
                parameter.normal_(std=0.2)
    model.save_pretrained(folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<end>", "<bos>", "<pad>")])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", chat_template=CHAT_TEMPLATE
    )
    fast.save_pretrained(folder)
    return folder


def context(folder: Path, options: ArOptions, *, owns_tokenizer: bool = False) -> EngineContext:
    """Return what an `ar` engine over `folder` is given."""
    return engine_context(
        replace(options, dtype="float32"),
        stage="thinker",
        checkpoint=folder,
        async_chunk=False,
        owns_tokenizer=owns_tokenizer,
    )


def loaded(
    folder: Path, options: ArOptions | None = None, *, owns_tokenizer: bool = False
) -> ArEngine:
    """Return a loaded `ar` engine over `folder`."""
    engine = ArEngine(context(folder, options or ArOptions(), owns_tokenizer=owns_tokenizer))
    engine.load()
    return engine


def token_payload(tokens: Sequence[int]) -> Payload:
    """Return a prompt of token ids."""
    data = memoryview(array.array("q", tokens)).cast("B")
    shape = (len(tokens),)
    return Payload(buffers=(Buffer(name="token_ids", dtype="int64", shape=shape, data=data),))


def text_payload(text: str) -> Payload:
    """Return a prompt, or a part of one, as text."""
    return Payload(meta={"text": text})


def start(engine: ArEngine, request_id: str, prompt: Payload, **params: object) -> None:
    """Give the engine a request with its whole prompt."""
    engine.add(EngineRequest(request_id=request_id, params=params))
    engine.append(request_id, prompt, last=True)


def finish(engine: ArEngine) -> dict[str, list[EngineOutput]]:
    """Step until nothing is left to do; return the outputs of every request."""
    outputs: dict[str, list[EngineOutput]] = {}
    while engine.has_work():
        for output in engine.step():
            outputs.setdefault(output.request_id, []).append(output)
    return outputs


def tokens_of(outputs: Sequence[EngineOutput]) -> list[int]:
    """Return all tokens of one request's outputs."""
    return [
        token
        for output in outputs
        for payload in output.payloads
        for token in payload.buffer("token_ids").data.cast("q").tolist()
    ]


def text_of(outputs: Sequence[EngineOutput]) -> str:
    """Return the whole text of one request's outputs."""
    return "".join(str(payload.meta["text"]) for output in outputs for payload in output.payloads)
