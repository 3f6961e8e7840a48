"""The talker's network: symbol ids of a clause to acoustic latents (the prior half of VITS).

Text encoder, duration flow and residual coupling flow are the modules of `transformers`; what is added
is the order of the steps, and noise that comes from the caller, so that a clause's latents depend on
nothing but its symbols and its noise. Source: VITS, Kim et al. 2021, https://arxiv.org/abs/2106.06103.

Encoding and durations run clause by clause: rounding durations to whole frames is a step function, and
the last bits of a float differ between a batch and a single clause. The flow, most of the work, runs as
a padded and masked batch.

Shape suffixes: b batch, t symbols, n latent frames, c latent channels (192), h hidden width, 2 the two
channels of the duration flow.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils.parametrize import remove_parametrizations

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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """Turns hidden states and noise into a duration per symbol (VITS 2.2.2, inference direction only)."""

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
        return latent_b2t[:, 0]


class TalkerNet(nn.Module):
    """Symbol ids to latents, in two steps: `prior` per clause, `decode` per batch of clauses."""

    def __init__(self, config: VitsConfig) -> None:
        """Build the modules of `config` with plain (not weight-normalised) convolutions."""
        super().__init__()
        self.text_encoder = VitsTextEncoder(config)
        self.durations = DurationFlow(config)
        self.flow = VitsResidualCouplingBlock(config)
        for coupling in self.flow.flows:
            for layer in (*coupling.wavenet.in_layers, *coupling.wavenet.res_skip_layers):
                remove_parametrizations(layer, "weight")

    @torch.inference_mode()
    def prior(self, ids_t: torch.Tensor, noise_2t: torch.Tensor, length_scale: float) -> Prior:
        """Encode one clause and stretch every symbol over its frames.

        `ids_t` is int64; `noise_2t` is normal noise times its scale; `length_scale` multiplies durations.
        """
        encoded = self.text_encoder(
            input_ids=ids_t[None], padding_mask=torch.ones(1, ids_t.shape[0], 1)
        )
        hidden_bht = encoded.last_hidden_state.transpose(1, 2)
        log_frames_t = self.durations(hidden_bht, noise_2t[None])[0]
        frames_t = torch.ceil(torch.exp(log_frames_t) * length_scale).long()
        mean_tc, log_scale_tc = encoded.prior_means[0], encoded.prior_log_variances[0]
        return Prior(
            mean_cn=mean_tc.repeat_interleave(frames_t, dim=0).T.contiguous(),
            log_scale_cn=log_scale_tc.repeat_interleave(frames_t, dim=0).T.contiguous(),
        )

    @torch.inference_mode()
    def decode(self, samples: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the flow over samples of priors, each `[c, n]` with its own n; return latents alike."""
        lengths = [sample_cn.shape[1] for sample_cn in samples]
        shape = (len(samples), samples[0].shape[0], max(lengths))
        batch_bcn = torch.zeros(shape)
        mask_b1n = torch.zeros(shape[0], 1, shape[2])
        for row, (sample_cn, length) in enumerate(zip(samples, lengths, strict=True)):
            batch_bcn[row, :, :length] = sample_cn
            mask_b1n[row, :, :length] = 1.0
        latent_bcn = self.flow(batch_bcn, mask_b1n, reverse=True)
        return [latent_bcn[row, :, :length].clone() for row, length in enumerate(lengths)]


def load_talker(folder: Path) -> tuple[TalkerNet, dict[str, Any]]:
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
    return net.eval().requires_grad_(requires_grad=False), facts
