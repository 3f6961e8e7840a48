"""The last matrix of the model, packed for products with several rows on a CPU.

The vocabulary makes it the largest matrix by far. In its plain layout, a product with 8 rows takes
twice the time of one with a packed layout (49152 x 576, float32, one core: 40 ms against 20 ms);
with one row the plain layout is the faster one. So both are kept; the plain one is mostly the input
embedding too.

Shape suffixes: b batch, y rows that yield a token, e embedding width, v vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


def pack_head(model: Any) -> None:  # noqa: ANN401  # any causal model of transformers
    """Pack the output matrix of `model` where that helps; other models are left as they are."""
    head = model.get_output_embeddings()
    if (
        type(head) is nn.Linear
        and head.weight.device.type == "cpu"
        and head.weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
    ):
        model.set_output_embeddings(PackedHead(head))


class PackedHead(nn.Module):
    """A linear layer with its weight in both layouts."""

    def __init__(self, plain: nn.Linear) -> None:
        """Keep `plain` and pack a copy of its weight."""
        super().__init__()
        self.weight = plain.weight
        self.bias = plain.bias
        # the layout depends on the rows that are said here; that for 8 is good from 2 to 64
        pack = torch.ops.mkldnn._reorder_linear_weight  # noqa: SLF001
        self._packed_ve = pack(plain.weight.detach(), 8)

    def forward(self, hidden_bye: torch.Tensor) -> torch.Tensor:
        """Return `[b, y, v]`."""
        if hidden_bye.numel() <= self.weight.shape[1]:
            return functional.linear(hidden_bye, self.weight, self.bias)
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001
            hidden_bye, self._packed_ve, self.bias, "none", [], ""
        )
        return product
