"""Stages of the real pipeline that share a process say what they say apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stagemesh import Omni
from stagemesh.runtime.outputs import OmniResult

pytestmark = pytest.mark.slow

PROMPTS = ("What is the capital of France?", "What do bees make?")
SHORT = {"thinker": {"max_tokens": 16}}


def waveform(result: OmniResult) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """The speech, float32 `[samples]`."""
    assert result.audio is not None
    return np.frombuffer(result.audio.samples, dtype=np.float32)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("host", "guests"),
    [
        ("talker", ["code2wav"]),
        ("thinker", ["talker", "code2wav"]),
    ],
    ids=["the last two", "all in one"],
)
def test_speech_is_the_same_from_one_process(
    voice_chat: Path, chunked: Omni, host: str, guests: list[str]
) -> None:
    """Same text, audio within rounding, and as many processes as the plan says."""
    apart = chunked.generate(PROMPTS, sampling_params=SHORT)
    shared = {guest: {"colocate_with": host} for guest in guests}
    with Omni(str(voice_chat), stage_overrides=shared) as omni:
        assert len(set(omni.pids.values())) == 3 - len(guests)
        together = omni.generate(PROMPTS, sampling_params=SHORT)
    for one, other in zip(apart, together, strict=True):
        assert one.text == other.text
        assert waveform(one).shape == waveform(other).shape
        assert np.abs(waveform(one) - waveform(other)).max() < 1e-4
