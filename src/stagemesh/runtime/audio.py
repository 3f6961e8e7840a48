"""Audio as the caller gets it: 32-bit float samples of one channel, without numpy."""

from __future__ import annotations

import array
import sys
import wave
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path
from typing import Final

from stagemesh.spec.frozen import frozen

_FLOAT_BYTES: Final = 4
_PEAK: Final = 32767


@frozen
class Audio:
    """A waveform."""

    samples: bytes = field(repr=False)
    """Little-endian float32, nominally in [-1, 1]."""
    sampling_rate: int
    """Samples per second."""

    @property
    def num_samples(self) -> int:
        """How many samples there are."""
        return len(self.samples) // _FLOAT_BYTES

    @property
    def seconds(self) -> float:
        """How long it plays."""
        return self.num_samples / self.sampling_rate

    @classmethod
    def joined(cls, pieces: Iterable[Audio]) -> Audio | None:
        """Put pieces of one stream together; `None` when there are none."""
        found = list(pieces)
        if not found:
            return None
        rates = {piece.sampling_rate for piece in found}
        if len(rates) > 1:
            raise ValueError(f"pieces of different sampling rates: `{sorted(rates)}`")
        samples = b"".join(piece.samples for piece in found)
        return cls(samples=samples, sampling_rate=found[0].sampling_rate)

    def write(self, path: str | Path) -> None:
        """Write a WAV file of 16-bit samples; what lies outside [-1, 1] is clipped."""
        floats = array.array("f", self.samples)
        if sys.byteorder == "big":
            floats.byteswap()
        pcm = array.array("h", (round(max(-1.0, min(1.0, value)) * _PEAK) for value in floats))
        if sys.byteorder == "big":
            pcm.byteswap()
        with Path(path).open("wb") as raw, wave.open(raw, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(self.sampling_rate)
            file.writeframes(pcm.tobytes())
