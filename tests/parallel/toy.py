"""A small network with everything that a plan can speak of, and its plan."""

from __future__ import annotations

from typing import Final

import torch
from torch import nn
from torch.nn import functional

from stagemesh.parallel.rehearsal import Example
from stagemesh.spec.model_plan import (
    AttentionSite,
    Gather,
    HeadAttribute,
    HeadTable,
    ModelPlan,
    SiteRole,
    Split,
    TpRule,
    TpStyle,
)

HEADS: Final = 4
KEYS: Final = 2
WIDTH: Final = 6
CHANNELS: Final = HEADS * WIDTH
TOKENS: Final = 7
BATCH: Final = 2


class Looking(nn.Module):
    """Attention with fewer key heads, a norm over all heads and a bias for each head."""

    def __init__(self) -> None:
        """All layers have a bias."""
        super().__init__()
        self.heads, self.keys, self.each = HEADS, KEYS, HEADS // KEYS
        self.q = nn.Linear(CHANNELS, CHANNELS)
        self.kv = nn.Linear(CHANNELS, 2 * KEYS * WIDTH)
        self.norm = nn.RMSNorm(CHANNELS)
        self.table = nn.Embedding(1, HEADS)
        self.o = nn.Linear(CHANNELS, CHANNELS)
        self.inner = [KEYS * WIDTH, KEYS * WIDTH]

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Look at all tokens."""
        query = self.norm(self.q(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        key, value = (
            each.unflatten(-1, (self.keys, -1)).transpose(1, 2).repeat_interleave(self.each, 1)
            for each in self.kv(x).chunk(2, dim=-1)
        )
        bias = self.table.weight.reshape(1, self.heads, 1, 1)
        bias = bias.expand(1, self.heads, query.shape[2], key.shape[2])
        if mask is not None:
            bias = bias + mask[:, None, None, :]
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        out: torch.Tensor = self.o(found.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """Attention and a packed feed-forward part."""

    def __init__(self) -> None:
        """Gate and entry lie in one layer."""
        super().__init__()
        self.attn = Looking()
        self.up = nn.Linear(CHANNELS, 2 * 10)
        self.down = nn.Linear(10, CHANNELS)

    def forward(
        self, x: torch.Tensor, angles: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """One layer."""
        x = x + self.attn(x + angles, mask)
        gate, entry = self.up(x).chunk(2, dim=-1)
        more: torch.Tensor = self.down(gate * entry)
        return x + more


class Angles(nn.Module):
    """A table of positions, as rotary embeddings are."""

    def forward(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the table twice."""
        table = torch.zeros(1, length, CHANNELS, device="meta")
        return table, table


class Toy(nn.Module):
    """A stack of blocks over one stream."""

    def __init__(self) -> None:
        """Two blocks."""
        super().__init__()
        self.entry = nn.Linear(3, CHANNELS)
        self.angles = Angles()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.out = nn.Linear(CHANNELS, 5)
        self.spare = nn.Linear(3, 3)  # never runs

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """From tokens to tokens."""
        table, _ = self.angles(x.shape[1])
        x = self.entry(x)
        for block in self.blocks:
            x = block(x, table, mask)
        out: torch.Tensor = self.out(x)
        return out


def toy() -> Toy:
    """Make one on the meta device."""
    with torch.device("meta"):
        return Toy()


EXAMPLE: Final = Example(
    network=toy,
    inputs={
        "x": torch.empty(BATCH, TOKENS, 3, device="meta"),
        "mask": torch.empty(BATCH, TOKENS, device="meta"),
    },
    lengths={"img": TOKENS},
)
_IMG: Final = ("img",)
_ATTN: Final = "blocks.*.attn"
PLAN: Final = ModelPlan(
    name="Toy",
    library="toys",
    family="toy",
    streams=_IMG,
    splits=(
        Split(module="blocks.0", value="x", dim=1, streams=_IMG, rank=3),
        Split(module="angles", value=0, dim=1, streams=_IMG, rank=3),
        Split(module="blocks.*", value="mask", dim=1, streams=_IMG, rank=2, optional=True),
    ),
    gathers=(Gather(module="out", dim=1, streams=_IMG, rank=3),),
    sites=(AttentionSite(module=_ATTN, role=SiteRole.SELF, streams=_IMG, masked=True),),
    tp=(
        TpRule(module=f"{_ATTN}.q", style=TpStyle.COLUMN, pieces="attn.heads"),
        TpRule(
            module=f"{_ATTN}.kv",
            style=TpStyle.COLUMN,
            blocks=("attn.inner",),
            pieces="attn.keys",
        ),
        TpRule(module=f"{_ATTN}.norm", style=TpStyle.NORM, pieces="attn.heads"),
        TpRule(module=f"{_ATTN}.o", style=TpStyle.ROW, pieces="attn.heads"),
        TpRule(module="blocks.*.up", style=TpStyle.COLUMN, blocks=(1, 1)),
        TpRule(module="blocks.*.down", style=TpStyle.ROW),
    ),
    attributes=(
        HeadAttribute(module=_ATTN, name="heads"),
        HeadAttribute(module=_ATTN, name="keys"),
        HeadAttribute(module=_ATTN, name="each", ratio=("heads", "keys")),
    ),
    tables=(HeadTable(module=f"{_ATTN}.table", value="weight", dim=1, pieces="attn.heads"),),
    blocks=("blocks",),
)
