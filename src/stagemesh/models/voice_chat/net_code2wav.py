"""The vocoder of code2wav: acoustic latents to a waveform (HiFi-GAN, its light variant).

The decoder shipped with `transformers` has residual blocks of three pairs of convolutions; this
voice uses blocks of two single convolutions ("V3" of the paper), hence own modules. Source:
HiFi-GAN, Kong et al. 2020, https://arxiv.org/abs/2010.05646, sections 2.2 and A.1.

Everything is convolution, so a frame's samples depend on the frames around it only (11 on each side
here). A window is decoded with context, and every inner layer drops the part of it that no later
layer looks at: the costly layers, at the highest rates, look a fraction of a frame aside.

Shape suffixes: b batch, c latent channels (192), n latent frames, f features, s samples (or steps
of an inner rate).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional


class ResBlock(nn.Module):
    """Dilated convolutions, each added to its input."""

    def __init__(
        self, channels: int, kernel_size: int, dilations: Sequence[int], slope: float
    ) -> None:
        """Build one convolution per dilation; `slope` is that of the leaky ReLU before each."""
        super().__init__()
        self.slope = slope
        self.convs = nn.ModuleList(
            nn.Conv1d(
                channels,
                channels,
                kernel_size,
                dilation=dilation,
                padding=dilation * (kernel_size - 1) // 2,
            )
            for dilation in dilations
        )

    def forward(self, x_bfs: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the shape of `x_bfs`."""
        for conv in self.convs:
            x_bfs = x_bfs + conv(functional.leaky_relu(x_bfs, self.slope))
        return x_bfs


class Code2WavNet(nn.Module):
    """Upsamples latents by transposed convolutions, with parallel residual blocks after each."""

    def __init__(self, facts: dict[str, Any]) -> None:
        """Build the network that `facts` (a `config.json`) describes."""
        super().__init__()
        self.slope: float = facts["leaky_relu_slope"]
        width: int = facts["hidden_size"]
        blocks = list(
            zip(facts["resblock_kernel_sizes"], facts["resblock_dilation_sizes"], strict=True)
        )
        self.num_blocks = len(blocks)
        self.conv_pre = nn.Conv1d(facts["latent_size"], width, 7, padding=3)
        self.ups = nn.ModuleList()
        self.resblocks = nn.ModuleList()
        rates = zip(facts["upsample_rates"], facts["upsample_kernel_sizes"], strict=True)
        for rate, kernel in rates:
            padding = (kernel - rate) // 2
            self.ups.append(nn.ConvTranspose1d(width, width // 2, kernel, rate, padding))
            width //= 2
            self.resblocks.extend(ResBlock(width, k, d, self.slope) for k, d in blocks)
        self.conv_post = nn.Conv1d(width, 1, 7, padding=3, bias=False)
        self.rates: list[int] = list(facts["upsample_rates"])
        self.halos = _halos(facts)

    @torch.inference_mode()
    def forward(self, latent_bcn: torch.Tensor, left: int = 0, right: int = 0) -> torch.Tensor:
        """Return float32 audio in [-1, 1] of the frames between the context.

        `left` and `right` are frames of context; with none on a side, that side is an end of the
        speech. The result is `[b, (n - left - right) * hop]`.
        """
        x_bfs = self.conv_pre(latent_bcn)
        for index, upsample in enumerate(self.ups):
            x_bfs = upsample(functional.leaky_relu(x_bfs, self.slope))
            left, right = left * self.rates[index], right * self.rates[index]
            blocks = self.resblocks[index * self.num_blocks : (index + 1) * self.num_blocks]
            total_bfs = blocks[0](x_bfs)
            for block in blocks[1:]:
                total_bfs = total_bfs + block(x_bfs)
            spare_left = max(left - self.halos[index], 0)
            spare_right = max(right - self.halos[index], 0)
            x_bfs = total_bfs[..., spare_left : total_bfs.shape[2] - spare_right] / self.num_blocks
            left, right = left - spare_left, right - spare_right
        # the last activation has torch's default slope (0.01), as in the published code
        x_bfs = self.conv_post(functional.leaky_relu(x_bfs))
        return torch.tanh(x_bfs)[:, 0, left : x_bfs.shape[2] - right]


def _halos(facts: dict[str, Any]) -> list[int]:
    """Return, for the output of every upsampling stage, how many steps aside later layers look."""
    blocks = zip(facts["resblock_kernel_sizes"], facts["resblock_dilation_sizes"], strict=True)
    block_reach = max(sum(dilations) * (kernel - 1) // 2 for kernel, dilations in blocks)
    halo = 3  # the last convolution
    halos = [halo]
    for rate in reversed(facts["upsample_rates"][1:]):
        # a transposed convolution of twice its stride looks one step aside
        halo = -(-(halo + block_reach) // rate) + 1
        halos.append(halo)
    return halos[::-1]


def load_code2wav(folder: Path, device: str = "cpu") -> tuple[Code2WavNet, dict[str, Any]]:
    """Load the network and the configuration of `folder` (`config.json`, `model.safetensors`)."""
    facts: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    net = Code2WavNet(facts)
    net.load_state_dict(load_file(folder / "model.safetensors"))
    return net.to(device).eval().requires_grad_(requires_grad=False), facts
