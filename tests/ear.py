"""The ear of the tests: a real speech recogniser, to hear whether the pipeline said what it should.

pocketsphinx (BSD) brings its English model in the package. It hears 16 kHz; what it is given at
another rate is resampled here. Small words and near-homophones are misheard even in clean speech,
so tests ask for an average overlap of words over many sentences.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    from pocketsphinx import Decoder

RATE: Final = 16_000
"""Samples per second that the recogniser hears."""
_SILENCE_S: Final = 0.3
"""Silence put before and after: the recogniser needs some to find where speech starts and ends."""


@cache
def _decoder() -> Decoder:
    from pocketsphinx import Decoder  # noqa: PLC0415  # loads its model

    return Decoder(samprate=RATE, loglevel="FATAL")


def hear(audio: npt.NDArray[np.float32], rate: int) -> str:
    """Return the words heard in mono `audio` ([-1, 1], `rate` samples/s), in lower case."""
    samples = resample(np.asarray(audio, dtype=np.float32), rate, RATE)
    peak = float(np.max(np.abs(samples), initial=0.0))
    if peak == 0.0:
        return ""
    silence = np.zeros(int(_SILENCE_S * RATE), dtype=np.float32)
    padded = np.concatenate([silence, samples * (0.7 / peak), silence])
    decoder = _decoder()
    decoder.reinit_feat()  # its noise estimate would make the result depend on earlier calls
    decoder.start_utt()
    decoder.process_raw((padded * 32767).astype("<i2").tobytes(), full_utt=True)
    decoder.end_utt()
    hypothesis = decoder.hyp()
    return "" if hypothesis is None else str(hypothesis.hypstr)


def word_overlap(said: str, heard: str) -> float:
    """Return the share of the words of `said`, counted with repeats, that were heard."""
    spoken = Counter(re.findall(r"[a-z']+", said.lower()))
    if not spoken:
        return 1.0
    common = spoken & Counter(re.findall(r"[a-z']+", heard.lower()))
    return common.total() / spoken.total()


def resample(audio: npt.NDArray[np.float32], rate: int, target: int) -> npt.NDArray[np.float32]:
    """Return `audio` at `target` samples/s, by a windowed-sinc filter without aliasing."""
    if rate == target or audio.size == 0:
        return audio
    half = 16 * math.ceil(rate / target)
    cutoff = min(1.0, target / rate) * 0.95
    centre = np.arange(int(audio.size * target / rate)) * (rate / target)
    index = np.floor(centre).astype(np.int64)[:, None] + np.arange(-half + 1, half + 1)
    distance = centre[:, None] - index
    window = 0.5 + 0.5 * np.cos(np.pi * np.clip(distance / half, -1.0, 1.0))
    weights = cutoff * np.sinc(cutoff * distance) * window
    inside = (index >= 0) & (index < audio.size)
    taps = np.where(inside, audio[np.clip(index, 0, audio.size - 1)], 0.0)
    result: npt.NDArray[np.float32] = np.sum(weights * taps, axis=1).astype(np.float32)
    return result
