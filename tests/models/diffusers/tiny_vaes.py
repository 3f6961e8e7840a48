"""Small VAEs of the classes that have plans."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

import torch

from stagemesh.parallel.vae.check import Tiles
from stagemesh.spec.frozen import frozen

_TWO_LEVELS: Final = {
    "block_out_channels": (8, 16),
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "norm_num_groups": 4,
    "latent_channels": 4,
}
_SMALL: Final = {"base_dim": 8, "num_res_blocks": 1, "z_dim": 4}
_RESIDUAL: Final = {
    **_SMALL,
    "is_residual": True,
    "patch_size": 2,
    "in_channels": 12,
    "out_channels": 12,
}
_HUNYUAN: Final = {
    "block_out_channels": (8, 8, 16, 16),
    "norm_num_groups": 4,
    "layers_per_block": 1,
    "latent_channels": 4,
}


@frozen
class TinyVae:
    """A small VAE, and the shapes that it codes."""

    name: str
    """The class."""
    config: Mapping[str, Any]
    """Its configuration."""
    picture: tuple[int, ...]
    """What is encoded."""
    latent: tuple[int, ...]
    """What is decoded."""
    tiles: Tiles
    """Its tiles."""

    def make(self, device: str = "meta") -> Any:  # noqa: ANN401  a class of diffusers
        """Make it on a device."""
        with torch.device(device):
            return getattr(importlib.import_module("diffusers"), self.name)(**self.config).eval()


STEPS: Final = Tiles(size=(256, 256), stride=(192, 192))
_CLIP: Final = (1, 3, 5, 40, 56)
VAES: Final = {
    "kl": TinyVae(
        name="AutoencoderKL",
        config=_TWO_LEVELS,
        picture=(1, 3, 20, 28),
        latent=(1, 4, 10, 14),
        tiles=Tiles(size=(32, 32), stride=(24, 24)),
    ),
    "wan": TinyVae(
        name="AutoencoderKLWan",
        config=_SMALL,
        picture=_CLIP,
        latent=(1, 4, 2, 5, 7),
        tiles=STEPS,
    ),
    "wan2_2": TinyVae(
        name="AutoencoderKLWan",
        config=_RESIDUAL,
        picture=(1, 3, 5, 64, 96),
        latent=(1, 4, 2, 4, 6),
        tiles=STEPS,
    ),
    "qwen_image": TinyVae(
        name="AutoencoderKLQwenImage",
        config=_SMALL,
        picture=(1, 3, 1, 40, 56),
        latent=(1, 4, 1, 5, 7),
        tiles=STEPS,
    ),
    "hunyuan_video": TinyVae(
        name="AutoencoderKLHunyuanVideo",
        config=_HUNYUAN,
        picture=_CLIP,
        latent=(1, 4, 2, 5, 7),
        tiles=STEPS,
    ),
}
TILES_ALONE: Final = {
    "cogvideox": TinyVae(
        name="AutoencoderKLCogVideoX",
        config={
            "block_out_channels": (8, 8, 8, 8),
            "norm_num_groups": 4,
            "layers_per_block": 1,
            "latent_channels": 4,
        },
        picture=(1, 3, 17, 64, 64),
        latent=(1, 4, 4, 8, 8),
        tiles=STEPS,
    ),
    "ltx": TinyVae(
        name="AutoencoderKLLTXVideo",
        config={
            "latent_channels": 8,
            "block_out_channels": (8, 8, 8, 8),
            "decoder_block_out_channels": (8, 8, 8, 8),
            "layers_per_block": (1, 1, 1, 1, 1),
            "decoder_layers_per_block": (1, 1, 1, 1, 1),
        },
        picture=(1, 3, 9, 64, 96),
        latent=(1, 8, 2, 2, 3),
        tiles=STEPS,
    ),
}
"""Those about whose bands nothing is known."""
