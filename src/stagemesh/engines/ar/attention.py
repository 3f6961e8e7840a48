"""Attention over the blocks of the cache, as a function that `transformers` models call by name.

A step is one row of tokens of several sequences, one after another. The function writes their keys
and values into the cache and lets every sequence attend to its own tokens. It finds the step in the
keyword argument `paged`, which `transformers` hands through from the model's `forward`.

Shape suffixes: b batch (1), h query heads, k key and value heads, g query heads of one key head, n
tokens of one sequence in the step, t tokens of the step, c tokens of one sequence in the cache, d
head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import torch
from torch.nn import functional
from transformers import AttentionInterface

from stagemesh.engines.ar.cache import KvCache, LayerShape, Layout, Segment
from stagemesh.spec.frozen import frozen

ATTENTION_NAME: Final = "stagemesh_paged"
"""The `attn_implementation` of models that the engine loads."""

_UNSUPPORTED: Final = ("s_aux", "position_bias", "head_mask")


@frozen
class Scores:
    """How a layer makes weights of scores."""

    scaling: float | None
    """Factor of the scores; `None` for the usual one."""
    window: int | None
    """Tokens that a token sees, itself included; `None` for all before it."""
    softcap: float | None
    """Bound that scores are bent to; `None` for none."""


class Paged(Protocol):
    """What a layer does with its queries, keys and values."""

    def attend(
        self,
        layer: int,
        query_bhtd: torch.Tensor,
        key_bktd: torch.Tensor,
        value_bktd: torch.Tensor,
        scores: Scores,
    ) -> torch.Tensor:
        """Return `[b, t, h, d]`."""
        ...


def register() -> None:
    """Make the function known to `transformers`; doing it again changes nothing."""
    AttentionInterface.register(ATTENTION_NAME, _attention)


def _attention(  # noqa: PLR0913, PLR0917  # the signature is that of transformers
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    *,
    paged: Paged,
    **others: object,
) -> tuple[torch.Tensor, None]:
    refused = [name for name in _UNSUPPORTED if others.get(name) is not None]
    if attention_mask is not None:
        refused.append("attention_mask")
    if refused:
        names = ", ".join(f"`{name}`" for name in refused)
        raise NotImplementedError(f"{type(module).__name__} asks for {names}, which is not served")
    scores = Scores(scaling=scaling, window=sliding_window, softcap=softcap)
    layer = module.layer_idx
    assert isinstance(layer, int)
    return paged.attend(layer, query, key, value, scores), None


class ShapeProbe:
    """Notes what every layer keeps and computes nothing; the first forward of a loaded model."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self.shapes: dict[int, LayerShape] = {}
        """What the layers keep, by number."""

    def attend(
        self,
        layer: int,
        query_bhtd: torch.Tensor,
        key_bktd: torch.Tensor,
        value_bktd: torch.Tensor,
        scores: Scores,
    ) -> torch.Tensor:
        """Note the shapes."""
        del scores
        self.shapes[layer] = LayerShape(
            num_kv_heads=key_bktd.shape[1],
            key_dim=key_bktd.shape[3],
            value_dim=value_bktd.shape[3],
        )
        batch, heads, tokens, _ = query_bhtd.shape
        return query_bhtd.new_zeros(batch, tokens, heads, value_bktd.shape[3])


class PagedStep:
    """One step over the cache."""

    def __init__(self, cache: KvCache, layout: Layout) -> None:
        """The layout says where the step's tokens are; sequences with one token come first."""
        self._cache = cache
        self._layout = layout

    def attend(
        self,
        layer: int,
        query_bhtd: torch.Tensor,
        key_bktd: torch.Tensor,
        value_bktd: torch.Tensor,
        scores: Scores,
    ) -> torch.Tensor:
        """Write the step's keys and values, then attend sequence by sequence."""
        self._cache.write(layer, self._layout.slots_t, key_bktd, value_bktd)
        segments = self._layout.segments
        singles = [segment for segment in segments if segment.count == 1]
        parts = []
        if singles:
            tokens = len(singles)
            parts.append(self._singles(layer, query_bhtd[:, :, :tokens], singles, scores))
        for segment in segments[len(singles) :]:
            query_bhnd = query_bhtd.narrow(2, segment.start, segment.count)
            key_bkcd, value_bkcd = self._cache.read(layer, segment)
            mask_nc = _mask(segment, scores.window, query_bhtd.device)
            out_bhnd = _weigh(query_bhnd, key_bkcd, value_bkcd, mask_nc, scores)
            parts.append(out_bhnd.transpose(1, 2))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _singles(
        self,
        layer: int,
        query_bhtd: torch.Tensor,
        segments: Sequence[Segment],
        scores: Scores,
    ) -> torch.Tensor:
        """Attention of sequences that have one token each in the step, `[b, t, h, d]`.

        Nothing is hidden from the newest token, so heads that share a key can take the place of
        tokens.
        """
        _, heads, tokens, width = query_bhtd.shape
        groups = heads // self._cache.num_kv_heads(layer)
        query_tbkgd = query_bhtd.transpose(1, 2).reshape(tokens, 1, -1, groups, width)
        parts = []
        for query_bkgd, segment in zip(query_tbkgd.unbind(0), segments, strict=True):
            key_bkcd, value_bkcd = self._cache.read(layer, segment)
            if scores.window is not None:
                key_bkcd = key_bkcd[:, :, -scores.window :]
                value_bkcd = value_bkcd[:, :, -scores.window :]
            parts.append(_weigh(query_bkgd, key_bkcd, value_bkcd, None, scores))
        out_tkgd = torch.cat(parts)
        return out_tkgd.reshape(1, tokens, heads, -1)


def _weigh(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask_nc: torch.Tensor | None,
    scores: Scores,
) -> torch.Tensor:
    if scores.softcap is None:
        return functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask_nc,
            scale=scores.scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scaling = query.shape[-1] ** -0.5 if scores.scaling is None else scores.scaling
    weights = torch.tanh(query @ key.transpose(2, 3) * scaling / scores.softcap) * scores.softcap
    if mask_nc is not None:
        weights = weights.masked_fill(~mask_nc, float("-inf"))
    return torch.softmax(weights, dim=-1, dtype=torch.float32).to(query.dtype) @ value


def _mask(segment: Segment, window: int | None, device: torch.device) -> torch.Tensor:
    """Which of its `c` tokens each of the `n` newest sees."""
    made = segment.masks.get(window)
    if made is None:
        key_c = torch.arange(segment.length, device=device)
        query_n1 = key_c[-segment.count :, None]
        made = key_c <= query_n1
        if window is not None:
            made &= key_c > query_n1 - window
        segment.masks[window] = made
    return made
