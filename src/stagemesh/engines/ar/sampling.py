"""Picks the next token of each request from the scores of a step.

Every request draws from its own generator and its own row, so its tokens depend on its seed and its
scores, never on who shares the batch. (Scores themselves may differ in the last bits with the size
of a batch, as in every library of matrix products.)

Shape suffixes: y requests that get a token, v vocabulary.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import torch

from stagemesh.engines.ar.options import ArParams


class Sampler:
    """How one request picks."""

    def __init__(self, params: ArParams, ends: frozenset[int], device: torch.device) -> None:
        """`ends` are the tokens that may end the answer, which `min_tokens` holds off."""
        self._params = params
        self._ends = sorted(ends)
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(secrets.randbits(63) if params.seed is None else params.seed)

    @property
    def is_plain(self) -> bool:
        """Whether it is always the likeliest token of the unchanged scores."""
        params = self._params
        untouched = params.repetition_penalty == 1 and params.min_tokens == 0
        return params.temperature == 0 and untouched

    def pick(self, scores_v: torch.Tensor, tokens: Sequence[int], num_answered: int) -> int:
        """Pick from a row; `tokens` are prompt and answer, the latter `num_answered` long."""
        params = self._params
        if params.repetition_penalty != 1:
            seen = torch.tensor(sorted(set(tokens)), device=scores_v.device)
            old = scores_v[seen]
            factor = params.repetition_penalty
            scores_v = scores_v.index_copy(
                0, seen, torch.where(old < 0, old * factor, old / factor)
            )
        if num_answered < params.min_tokens and self._ends:
            ends = torch.tensor(self._ends, device=scores_v.device)
            scores_v = scores_v.index_fill(0, ends, float("-inf"))
        if params.temperature == 0:
            return int(scores_v.argmax())
        scores_v = _nucleus(_best(scores_v / params.temperature, params.top_k), params.top_p)
        weights_v = torch.softmax(scores_v, dim=-1)
        return int(torch.multinomial(weights_v, 1, generator=self._generator))


def pick_all(
    scores_yv: torch.Tensor, requests: Sequence[tuple[Sampler, Sequence[int], int]]
) -> list[int | Exception]:
    """Pick for every row; a request gives sampler, tokens and how many it has answered.

    Where a row allows no pick, its place holds why; the others are none the worse for it.
    """
    best = scores_yv.argmax(dim=-1).tolist()
    return [
        best[row] if sampler.is_plain else _pick(sampler, scores_yv[row], tokens, answered)
        for row, (sampler, tokens, answered) in enumerate(requests)
    ]


def _pick(
    sampler: Sampler, scores_v: torch.Tensor, tokens: Sequence[int], num_answered: int
) -> int | Exception:
    try:
        return sampler.pick(scores_v, tokens, num_answered)
    except Exception as error:  # noqa: BLE001  # the edge of one request
        return error


def _best(scores_v: torch.Tensor, count: int) -> torch.Tensor:
    """Rule out all but the `count` best (and those equal to the last); 0 rules out none."""
    if count == 0 or count >= len(scores_v):
        return scores_v
    least = scores_v.topk(count).values[-1]
    return scores_v.masked_fill(scores_v < least, float("-inf"))


def _nucleus(scores_v: torch.Tensor, mass: float) -> torch.Tensor:
    """Rule out all but the likeliest tokens that just reach `mass`; one always stays."""
    if mass >= 1:
        return scores_v
    sorted_v, order_v = scores_v.sort(descending=True)
    weights_v = torch.softmax(sorted_v, dim=-1)
    before_v = weights_v.cumsum(dim=-1) - weights_v
    before_v[0] = -1.0
    return scores_v.index_fill(0, order_v[before_v >= mass], float("-inf"))
