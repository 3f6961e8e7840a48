"""What deploy files and requests may set for the stages of `voice_chat`."""

from __future__ import annotations

from typing import Annotated

from stagemesh.spec.bounds import Range
from stagemesh.spec.frozen import frozen


@frozen
class TalkerOptions:
    """`additional_config` of the talker."""

    chunk_frames: Annotated[int, Range(minimum=1)] = 32
    """Latent frames in one chunk for the vocoder; one frame is 256 samples (11.6 ms)."""


@frozen
class TalkerParams:
    """Request parameters of the talker."""

    seed: Annotated[int, Range(minimum=0)] = 0
    """Seed of the voice's variation; the same text and seed give the same latents."""
    noise_scale: Annotated[float, Range(minimum=0.0, maximum=2.0)] | None = None
    """Variation of the sound; `None` takes the voice's own value, 0 gives none."""
    noise_scale_duration: Annotated[float, Range(minimum=0.0, maximum=2.0)] | None = None
    """Variation of the rhythm; `None` takes the voice's own value, 0 gives none."""
    length_scale: Annotated[float, Range(minimum=0.25, maximum=4.0)] | None = None
    """Slowness: 2 takes twice as long as 1; `None` takes the voice's own value."""


@frozen
class Code2WavOptions:
    """`additional_config` of code2wav."""

    context_frames: Annotated[int, Range(minimum=0)] = 12
    """Latent frames decoded around a chunk and cut off; 12 make it equal to a whole decode."""
    chunk_frames: Annotated[int, Range(minimum=1)] = 32
    """Latent frames rendered per step while latents stream in."""
