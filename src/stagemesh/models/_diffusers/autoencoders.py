"""Autoencoders: how far they shrink a picture or a clip, and their number of weights, by class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from stagemesh.models._diffusers.denoisers import CLASS_KEY
from stagemesh.models._diffusers.numbers import MissingNumberError, number, numbers
from stagemesh.spec.frozen import frozen
from stagemesh.spec.pipeline import JsonObject


@frozen
class Autoencoder:
    """What the configuration of one VAE says."""

    frames: int = 1
    """Frames of a clip that become one of the latent, the first one apart; 1 for pictures."""
    pixels: int | None = None
    """Pixels along each side that become one cell of the latent; `None` where nothing is known."""
    num_parameters: int | None = None
    """Weights of both halves; `None` where no formula is known."""


def autoencoder(config: JsonObject) -> Autoencoder:
    """Read the configuration of a VAE; nothing is known of an unknown class.

    Raises `TypeError` naming the key when a value is no usable number.
    """
    read = _READERS.get(str(config.get(CLASS_KEY)))
    try:
        return Autoencoder() if read is None else read(config)
    except MissingNumberError:
        return Autoencoder()


@frozen
class _Stack:
    """A stack of residual blocks of two convolutions, level by level."""

    widths: Sequence[int]
    """Channels of each level, from the pixels on."""
    blocks: int
    """Blocks of a level of the encoder; the decoder has one more."""
    kernel: int
    """Weights of one kernel: 9 for pictures, 27 for clips."""
    resize: int
    """Weights of one kernel between two levels."""
    latent: int
    """Channels of the latent."""

    def half(self, widths: Sequence[int], blocks: int, outer: int) -> int:
        """Weights of one half, `widths` in its own order, `outer` channels of the latent."""
        deepest = self.widths[-1]
        middle = 2 * self._block(deepest, deepest) + 4 * deepest**2
        ends = self.kernel * (3 * self.widths[0] + outer * deepest)
        levels = sum(
            self._block(before, width) + (blocks - 1) * self._block(width, width)
            for before, width in zip((widths[0], *widths), widths, strict=False)
        )
        return middle + ends + levels + self.resize * sum(width**2 for width in widths[:-1])

    def _block(self, before: int, width: int) -> int:
        shortcut = before * width if before != width else 0
        return self.kernel * (before * width + width**2) + shortcut

    @property
    def encoder(self) -> int:
        """Weights of the encoder; it puts out a mean and a variance."""
        return self.half(self.widths, self.blocks, 2 * self.latent)

    @property
    def decoder(self) -> int:
        """Weights of the decoder."""
        return self.half(tuple(reversed(self.widths)), self.blocks + 1, self.latent)


def _of_pictures(config: JsonObject) -> Autoencoder:
    """The VAE of Stable Diffusion, FLUX and others: each level but the last halves both sides."""
    widths = numbers(config, "block_out_channels")
    stack = _Stack(
        widths=widths,
        blocks=number(config, "layers_per_block"),
        kernel=9,
        resize=9,
        latent=number(config, "latent_channels"),
    )
    pixels = 2 ** (len(widths) - 1)
    return Autoencoder(frames=1, pixels=pixels, num_parameters=stack.encoder + stack.decoder)


def _of_clips(config: JsonObject) -> Autoencoder:
    """The VAEs of HunyuanVideo and CogVideoX: the same in three dimensions."""
    widths = numbers(config, "block_out_channels")
    stack = _Stack(
        widths=widths,
        blocks=number(config, "layers_per_block"),
        kernel=27,
        resize=27 if "spatial_compression_ratio" in config else 9,
        latent=number(config, "latent_channels"),
    )
    return Autoencoder(
        frames=number(config, "temporal_compression_ratio", 4),
        pixels=number(config, "spatial_compression_ratio", 2 ** (len(widths) - 1)),
        num_parameters=stack.encoder + stack.decoder,
    )


def _wan(config: JsonObject) -> Autoencoder:
    """The VAEs of Wan and Qwen-Image; the decoder of a later one is wider than the encoder."""
    base, scales = number(config, "base_dim"), numbers(config, "dim_mult")
    latent, blocks = number(config, "z_dim"), number(config, "num_res_blocks")
    encoder, decoder = (
        _Stack(
            widths=[width * scale for scale in scales],
            blocks=blocks,
            kernel=27,
            resize=9,
            latent=latent,
        )
        for width in (base, number(config, "decoder_base_dim", base))
    )
    return Autoencoder(
        frames=number(config, "scale_factor_temporal", 4),
        pixels=number(config, "scale_factor_spatial", 2 ** (len(scales) - 1)),
        num_parameters=encoder.encoder + decoder.decoder,
    )


def _ltx(config: JsonObject) -> Autoencoder:
    """The VAE of LTX-Video: 32 pixels and 8 frames, unless the file says otherwise."""
    return Autoencoder(
        frames=number(config, "temporal_compression_ratio", 8),
        pixels=number(config, "spatial_compression_ratio", 32),
    )


_Reader: TypeAlias = Callable[[JsonObject], Autoencoder]

_READERS: Final[Mapping[str, _Reader]] = {
    "AutoencoderKL": _of_pictures,
    "AutoencoderKLFlux2": _of_pictures,
    "AutoencoderKLHunyuanVideo": _of_clips,
    "AutoencoderKLCogVideoX": _of_clips,
    "AutoencoderKLWan": _wan,
    "AutoencoderKLQwenImage": _wan,
    "AutoencoderKLLTXVideo": _ltx,
}
"""Readers by class."""
KNOWN_AUTOENCODERS: Final = tuple(_READERS)
"""Classes whose configuration is understood."""
