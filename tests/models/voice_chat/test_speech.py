"""The ear test: what the voice says is what a recogniser hears."""

from __future__ import annotations

import pytest
from _pytest.capture import CaptureFixture

from stagemesh.models.voice_chat.code2wav import Code2Wav
from stagemesh.models.voice_chat.talker import Talker
from tests.ear import hear, word_overlap
from tests.models.voice_chat.driving import joined, latents, payloads_of, waveform

pytestmark = pytest.mark.slow

SENTENCES = (
    "The capital of France is Paris.",
    "Water boils at one hundred degrees.",
    "The sun rises in the east.",
    "Close the door behind you.",
    "My brother bought a new car.",
    "She sells fresh bread.",
    "We will meet again on Monday.",
    "The children are playing football.",
    "The train leaves at noon.",
    "A computer is a machine.",
)


def test_speech_is_understood(
    streaming_talker: Talker, streaming_code2wav: Code2Wav, capsys: CaptureFixture[str]
) -> None:
    """Over all sentences the recogniser hears at least 0.6 of the words on average."""
    scores: list[float] = []
    for sentence in SENTENCES:
        pieces = payloads_of(latents(streaming_talker, [sentence]))
        audio_s = joined(waveform(streaming_code2wav, pieces), "audio")
        heard = hear(audio_s.numpy(), 22_050)
        scores.append(word_overlap(sentence, heard))
        with capsys.disabled():
            print(f"\n{scores[-1]:.2f} {heard}", end="")  # noqa: T201  # the evidence, in the log
    average = sum(scores) / len(scores)
    assert average >= 0.6, scores
