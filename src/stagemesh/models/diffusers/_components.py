"""Names of the components of a checkpoint, by what they do."""

from __future__ import annotations

from typing import Final

DENOISERS: Final = ("transformer", "transformer_2", "unet")
"""Components that denoise; two of them take turns."""
ENCODERS: Final = (
    "text_encoder",
    "text_encoder_2",
    "text_encoder_3",
    "text_encoder_4",
    "image_encoder",
)
"""Components that turn what the request says into numbers."""
DECODERS: Final = ("vae", "audio_vae", "vocoder")
"""Components that turn the latent into what the user gets."""
