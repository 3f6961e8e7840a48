"""The talker's network: symbol ids of a clause to acoustic latents (the prior half of VITS).

Text encoder, duration flow and residual coupling flow are the modules of `transformers`; what is
added is the order of the steps, and noise that comes from the caller, so that a clause's latents
depend on nothing but its symbols and its noise. Source: VITS, Kim et al. 2021,
https://arxiv.org/abs/2106.06103.

Clauses run one by one, never as a padded batch. Durations are rounded to whole frames, a step that
the last bits of a float can tip over; and latents reach +-66, where a batch moves them by up to
7e-5 while it gains no time on a CPU (measured over 200 clauses in batches of 8).

Shape suffixes: b batch, t symbols, n latent frames, c latent channels (192), h hidden width, 2 the
two channels of the duration flow.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils.parametrize import is_parametrized, remove_parametrizations

with warnings.catch_warnings():
    # the module compiles one function with torch.jit.script, which torch 2.13 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from transformers.models.vits.modeling_vits import (
        VitsConvFlow,
        VitsDilatedDepthSeparableConv,
        VitsElementwiseAffine,
        VitsResidualCouplingBlock,
        VitsTextEncoder,
    )
from transformers import VitsConfig

from stagemesh.spec.frozen import frozen

_LONGEST_SYMBOL_FRAMES: Final = 172
"""Two seconds: far above what the voice says; it bounds memory when a request asks for noise."""


@frozen
class Prior:
    """What a clause says before the flow: one normal distribution per latent frame."""

    mean_cn: torch.Tensor
    """Means."""
    log_scale_cn: torch.Tensor
    """Logarithms of the standard deviations."""

    @property
    def num_frames(self) -> int:
        """Latent frames of the clause."""
        return self.mean_cn.shape[1]


class DurationFlow(nn.Module):
    """Hidden states and noise to a duration per symbol (VITS 2.2.2, inference direction only)."""

    def __init__(self, config: VitsConfig) -> None:
        """Build the layers of `config`, without those that only training uses."""
        super().__init__()
        width = config.hidden_size
        self.conv_pre = nn.Conv1d(width, width, 1)
        self.conv_dds = VitsDilatedDepthSeparableConv(config)
        self.conv_proj = nn.Conv1d(width, width, 1)
        self.affine = VitsElementwiseAffine(config)
        self.flows = nn.ModuleList(
            VitsConvFlow(config) for _ in range(config.duration_predictor_num_flows)
        )

    def forward(self, hidden_bht: torch.Tensor, noise_b2t: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of every symbol's duration in frames, `[b, t]`."""
        mask_b1t = torch.ones_like(noise_b2t[:, :1])
        hidden_bht = self.conv_dds(self.conv_pre(hidden_bht), mask_b1t)
        hidden_bht = self.conv_proj(hidden_bht)
        latent_b2t = noise_b2t
        for flow in reversed(self.flows):
            latent_b2t = torch.flip(latent_b2t, [1])
            latent_b2t, _ = flow(latent_b2t, mask_b1t, hidden_bht, reverse=True)
        latent_b2t = torch.flip(latent_b2t, [1])
        latent_b2t, _ = self.affine(latent_b2t, mask_b1t, reverse=True)
        log_frames_bt: torch.Tensor = latent_b2t[:, 0]
        return log_frames_bt


def _plain_convolutions(coupling: nn.Module) -> None:
    """Take weight normalisation off: the checkpoint holds the weights that it amounts to."""
    for layer in coupling.modules():
        if isinstance(layer, nn.Conv1d) and is_parametrized(layer, "weight"):
            remove_parametrizations(layer, "weight")


class TalkerNet(nn.Module):
    """Symbol ids to latents, one clause at a time: `prior`, a sample of it, `decode`."""

    def __init__(self, config: VitsConfig) -> None:
        """Build the modules of `config` with plain (not weight-normalised) convolutions."""
        super().__init__()
        self.text_encoder = VitsTextEncoder(config)
        self.durations = DurationFlow(config)
        self.flow = VitsResidualCouplingBlock(config)
        for coupling in self.flow.flows:
            _plain_convolutions(coupling)

    @torch.inference_mode()
    def prior(self, ids_t: torch.Tensor, noise_2t: torch.Tensor, length_scale: float) -> Prior:
        """Encode one clause and stretch every symbol over its frames.

        `ids_t` is int64; `noise_2t` is normal noise times its scale; `length_scale` multiplies
        durations.
        """
        encoded = self.text_encoder(
            input_ids=ids_t[None], padding_mask=noise_2t.new_ones(1, ids_t.shape[0], 1)
        )
        hidden_bht = encoded.last_hidden_state.transpose(1, 2)
        log_frames_t = self.durations(hidden_bht, noise_2t[None])[0]
        longest = _LONGEST_SYMBOL_FRAMES * length_scale
        frames_t = torch.ceil(torch.exp(log_frames_t) * length_scale).clamp(max=longest).long()
        mean_tc, log_scale_tc = encoded.prior_means[0], encoded.prior_log_variances[0]
        return Prior(
            mean_cn=mean_tc.repeat_interleave(frames_t, dim=0).T.contiguous(),
            log_scale_cn=log_scale_tc.repeat_interleave(frames_t, dim=0).T.contiguous(),
        )

    @torch.inference_mode()
    def decode(self, sample_cn: torch.Tensor) -> torch.Tensor:
        """Run the flow over a sample of a prior; return the latents, of the same shape."""
        mask_b1n = sample_cn.new_ones(1, 1, sample_cn.shape[1])
        latent_cn: torch.Tensor = self.flow(sample_cn[None], mask_b1n, reverse=True)[0]
        return latent_cn


def load_talker(folder: Path, device: str = "cpu") -> tuple[TalkerNet, dict[str, Any]]:
    """Load the network and the configuration of `folder` (`config.json`, `model.safetensors`)."""
    facts: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = VitsConfig(
        vocab_size=facts["vocab_size"],
        hidden_size=facts["hidden_size"],
        num_hidden_layers=facts["num_hidden_layers"],
        num_attention_heads=facts["num_attention_heads"],
        window_size=facts["window_size"],
        ffn_dim=facts["intermediate_size"],
        flow_size=facts["flow_size"],
        prior_encoder_num_flows=facts["num_flows"],
        prior_encoder_num_wavenet_layers=facts["num_wavenet_layers"],
        duration_predictor_num_flows=facts["num_duration_flows"],
    )
    net = TalkerNet(config)
    net.load_state_dict(load_file(folder / "model.safetensors"))
    return net.to(device).eval().requires_grad_(requires_grad=False), facts
