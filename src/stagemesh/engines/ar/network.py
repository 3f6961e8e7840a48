"""The model: loading it as published, and running one step of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
from transformers.utils import logging as transformers_logging

from stagemesh.engines.ar.attention import (
    ATTENTION_NAME,
    Paged,
    PagedStep,
    ShapeProbe,
    register,
)
from stagemesh.engines.ar.cache import KvCache, LayerShape
from stagemesh.engines.ar.head import pack_head
from stagemesh.engines.ar.memory import cache_blocks, served_length
from stagemesh.engines.ar.options import ArOptions
from stagemesh.engines.ar.scheduler import Chunk
from stagemesh.spec.frozen import frozen

_PROBE_TOKENS: Final = 2


@frozen
class Limits:
    """What the engine has to know about a loaded model."""

    max_model_len: int
    """Longest sequence."""
    num_blocks: int
    """Blocks of the cache."""
    vocab_size: int
    """Token ids are below it."""
    end_tokens: frozenset[int]
    """The checkpoint's own end tokens."""


class Network:
    """A causal language model of `transformers` over a cache in blocks."""

    def __init__(self, folder: Path, options: ArOptions, device: torch.device) -> None:
        """Load it; raises `ValueError` for a model or limits that cannot be served."""
        register()
        transformers_logging.disable_progress_bar()
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        self._dtype = compute_dtype(config.dtype, options.dtype, device)
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            attn_implementation=ATTENTION_NAME,
            dtype=self._dtype,
            local_files_only=True,
        )
        self._model = model.to(device).eval().requires_grad_(requires_grad=False)
        pack_head(self._model)
        self._device = device
        text_config = config.get_text_config(decoder=True)
        shapes = self._probe(text_config.num_hidden_layers)
        self.limits: Final = self._limits(folder, options, text_config, shapes)
        self._cache = KvCache(
            shapes,
            num_blocks=self.limits.num_blocks,
            block_size=options.block_size,
            dtype=self._dtype,
            device=device,
        )

    @torch.inference_mode()
    def run(self, chunks: Sequence[Chunk], tokens: Sequence[int]) -> torch.Tensor:
        """Compute the chunks, whose tokens follow each other in `tokens`.

        Returns the float32 scores `[y, v]` of the next token for those that yield one, in order.
        """
        layout = self._cache.layout(chunks)
        ends, end = [], -1
        for chunk in chunks:
            end += chunk.count
            if chunk.yields_token:
                ends.append(end)
        step = PagedStep(self._cache, layout)
        logits_btv = self._forward(list(tokens), layout.positions_t, ends, step)
        return logits_btv[0].float()

    def _forward(
        self, tokens: list[int], positions_t: torch.Tensor, ends: list[int], paged: Paged
    ) -> torch.Tensor:
        output = self._model(
            input_ids=torch.tensor([tokens], device=self._device),
            position_ids=positions_t.unsqueeze(0),
            use_cache=False,
            logits_to_keep=torch.tensor(ends, dtype=torch.int64, device=self._device),
            paged=paged,
        )
        logits: torch.Tensor = output.logits
        return logits

    @torch.inference_mode()
    def _probe(self, num_layers: int) -> list[LayerShape]:
        """Run two tokens through the model to see what its layers keep, and that all of them do."""
        probe = ShapeProbe()
        positions_t = torch.arange(_PROBE_TOKENS, device=self._device)
        self._forward([0] * _PROBE_TOKENS, positions_t, [], probe)
        if sorted(probe.shapes) != list(range(num_layers)):
            kind = type(self._model).__name__
            raise ValueError(
                f"`{kind}` has layers without attention of their own, which is not served"
            )
        return [probe.shapes[layer] for layer in range(num_layers)]

    def _limits(
        self,
        folder: Path,
        options: ArOptions,
        config: Any,  # noqa: ANN401  # every model of transformers has its own type
        shapes: Sequence[LayerShape],
    ) -> Limits:
        longest = int(config.max_position_embeddings)
        token_bytes = sum(shape.num_elements for shape in shapes) * self._dtype.itemsize
        wanted = served_length(options, token_bytes=token_bytes, longest=longest)
        if wanted > longest:
            raise ValueError(f"`max_model_len` is `{wanted}`, the model allows `{longest}`")
        blocks = cache_blocks(options, token_bytes=token_bytes, max_model_len=wanted)
        if blocks * options.block_size < wanted:
            need = math.ceil(wanted / options.block_size) * options.block_size * token_bytes
            raise ValueError(
                f"`kv_cache_memory_bytes` is `{options.kv_cache_memory_bytes}`, one sequence of "
                f"`{wanted}` tokens needs `{need}`"
            )
        return Limits(
            max_model_len=wanted,
            num_blocks=blocks,
            vocab_size=int(config.vocab_size),
            end_tokens=_end_tokens(folder, config),
        )


def compute_dtype(stored: torch.dtype | None, wanted: str, device: torch.device) -> torch.dtype:
    """Return the type to compute in; `stored` is the checkpoint's, `wanted` is `auto` or a type."""
    if wanted != "auto":
        named: torch.dtype = getattr(torch, wanted)
        return named
    dtype = stored or torch.float32
    if device.type == "cpu" and not _computes_natively(dtype):
        return torch.float32
    return dtype


def _computes_natively(dtype: torch.dtype) -> bool:
    """Whether this CPU has instructions for `dtype`; without them it is slower than float32."""
    able = torch.cpu.get_capabilities()
    match dtype:
        case torch.bfloat16:
            return any(able.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
        case torch.float16:
            return any(able.get(name, False) for name in ("avx512_fp16", "amx_fp16", "fp16_arith"))
    return True


def _end_tokens(folder: Path, config: Any) -> frozenset[int]:  # noqa: ANN401
    ends = config.eos_token_id
    if (folder / "generation_config.json").is_file():
        ends = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id or ends
    listed = [ends] if isinstance(ends, int) else ends or ()
    # some checkpoints say that they have none by a token that does not exist
    return frozenset(token for token in listed if 0 <= token < config.vocab_size)
