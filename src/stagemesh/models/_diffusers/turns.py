"""What only denoisers that take turns can use: nothing acts on it where a checkpoint has one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ONE_DENOISER_LACKS: Final[Mapping[str, str]] = dict.fromkeys(
    ("boundary_ratio", "guidance_scale_2"),
    "the checkpoint has one denoiser, and this is about a second one that takes over; leave it out",
)
"""Stage fields and request parameters, each with the reason."""
