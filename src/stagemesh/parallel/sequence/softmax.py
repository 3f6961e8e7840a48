"""Attention of some rows to some columns, in a form in which parts can be joined.

B batch, S rows, T columns, H heads, G heads of keys, D size of a head. Parts are kept in fp32 (fp64
for fp64) with the logarithm of their sums, which is always B, H, S. A row that sees nothing has an
output of 0 and a logarithm of minus infinity; joined with others it changes nothing.
"""

from __future__ import annotations

import torch

from stagemesh.spec.frozen import frozen


@frozen
class Partial:
    """What rows have seen of the columns so far."""

    out_bhsd: torch.Tensor
    """Weighted values."""
    lse_bhs: torch.Tensor
    """Logarithm of the sum of weights."""

    def join(self, other: Partial) -> Partial:
        """Return what has been seen of the columns of both."""
        lse = torch.logaddexp(self.lse_bhs, other.lse_bhs)
        blind = torch.isneginf(lse)
        reference = lse.masked_fill(blind, 0)
        own = (self.lse_bhs - reference).exp().unsqueeze(-1)
        others = (other.lse_bhs - reference).exp().unsqueeze(-1)
        return Partial(out_bhsd=self.out_bhsd * own + other.out_bhsd * others, lse_bhs=lse)


def partial_attention(
    q_bshd: torch.Tensor,
    k_bthd: torch.Tensor,
    v_bthd: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
) -> Partial:
    """Attend to some columns; keys have as many heads as queries.

    `mask` broadcasts to B, H, S, T: true where a row sees a column, or numbers to be added.
    """
    kind = torch.promote_types(q_bshd.dtype, torch.float32)
    q, k, v = (each.transpose(1, 2).to(kind) for each in (q_bshd, k_bthd, v_bthd))
    if k.shape[2] == 0:
        return Partial(out_bhsd=torch.zeros_like(q), lse_bhs=q.new_full(q.shape[:3], -torch.inf))
    scores = (q @ k.transpose(2, 3)) * scale
    if mask is not None:
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, -torch.inf)
        else:
            scores += mask.to(kind)
    top = scores.amax(-1, keepdim=True)
    top = top.masked_fill(torch.isneginf(top), 0)
    weights = (scores - top).exp()
    total = weights.sum(-1, keepdim=True)
    out = (weights @ v) / total.masked_fill(total == 0, 1)
    return Partial(out_bhsd=out, lse_bhs=(total.log() + top).squeeze(-1))
